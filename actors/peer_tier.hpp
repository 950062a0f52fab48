#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/peer_lines.hpp"
#include "model/block_tier.hpp"

namespace outrider::actors {

/// Blocks of other targets as a tier below an engine's pool: of a request that was handed over,
/// what its last target has is asked for there, if that is sooner than computing it. Everything
/// else is the affair of the tier below, if there is one. Whatever goes wrong with a peer is a
/// miss. Has a thread that talks to one peer at a time. Thread-safe.
class PeerTier final : public model::BlockTier {
 public:
  /// `below` may be null.
  PeerTier(std::shared_ptr<model::BlockTier> below, PeerLines lines,
           std::shared_ptr<spdlog::logger> log);
  ~PeerTier() override;

  /// A worker gives one of its requests away; `tell` has it come to a line at that gate, at once,
  /// however long the request waits here: so it knows that it is to stay.
  void know(uint64_t worker, std::string gate, std::function<void(LineName)> tell);
  /// One of those needs nothing any more. With the last one the line ends; without that word, after
  /// limits::hand_over_ms.
  void through(uint64_t worker);
  uint64_t taken() const { return taken_; }  ///< Blocks.

  void serve(std::shared_ptr<model::TierOffers> offers) override;
  void look() override;
  std::vector<bool> touch(std::span<const BlockId> chain, bool hint) override;
  void put(const Digest256& kv_namespace, uint32_t layers, model::TierBlock block,
           const model::TierRetention& retention) override;
  uint64_t room() const override;
  void retain(std::vector<BlockId> ids, const model::TierRetention& retention) override;
  void load(model::TierLoad load, model::TierHandlers handlers) override;

 private:
  struct Peer {
    std::string gate;
    std::function<void(LineName)> tell;
    std::unique_ptr<link::TensorLink> link;  ///< The thread's; null: none yet, or it is over.
    bool failed = false;
    uint32_t open = 0;   ///< Requests that may ask.
    TimePoint known{0};  ///< The last of them.
  };
  struct Job {
    std::shared_ptr<Peer> peer;
    model::TierLoad load;
    model::TierHandlers handlers;
  };
  /// Null: it does not pay, or nobody knows the worker.
  std::shared_ptr<Peer> peer_for(const model::TierLoad& load);
  void load_below(model::TierLoad load, model::TierHandlers handlers);
  void run();
  std::shared_ptr<Peer> lineless() const;
  bool is_needed(const Peer& peer) const;
  void fetch(Job job);
  bool connect(Peer& peer);
  uint32_t take(Peer& peer, const model::TierLoad& load, const model::TierHandlers& handlers);

  const std::shared_ptr<model::BlockTier> below_;
  const PeerLines lines_;
  const std::shared_ptr<spdlog::logger> log_;
  std::shared_ptr<model::TierOffers> offers_;  ///< Without a tier below.
  std::atomic<uint64_t> taken_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, std::shared_ptr<Peer>> peers_;
  std::deque<Job> jobs_;
  double bytes_per_s_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace outrider::actors
