#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/peer_line.hpp"
#include "model/block_tier.hpp"

namespace outrider::actors {

/// Blocks of other targets as a tier below an engine's pool: of a request that was handed over,
/// what its last target has is asked for there, if that is sooner than computing it. Everything
/// else is the affair of the tier below, if there is one. Whatever goes wrong with a peer is a
/// miss. Thread-safe.
class PeerTier final : public model::BlockTier {
 public:
  /// `below` may be null.
  PeerTier(std::shared_ptr<model::BlockTier> below, PeerLines lines,
           std::shared_ptr<spdlog::logger> log);

  /// A worker gives one of its requests away; `tell` has it come to a line at that gate, at once,
  /// however long the request waits here: so it knows that it is to stay.
  void know(uint64_t worker, std::string gate, std::function<void(LineName)> tell);
  /// One of those needs nothing any more. With the last one the line ends; without that word, after
  /// limits::hand_over_ms.
  void through(uint64_t worker);
  uint64_t taken() const { return *taken_; }  ///< Blocks.

  void serve(std::shared_ptr<model::TierOffers> offers) override;
  void look() override;
  std::vector<model::TierWants> touch(
      std::span<const BlockId> chain,
      const std::shared_ptr<const model::TierRetention>& retention) override;
  void put(const Digest256& kv_namespace, uint32_t layers, model::TierOffer offer) override;
  model::WarmRoom warm_room(const BlockId& id, size_t bytes) override;
  uint64_t room() const override;
  void retain(std::vector<BlockId> ids, const model::TierRetention& retention) override;
  void load(model::TierLoad load, model::TierHandlers handlers) override;
  void forget_warm(const std::optional<std::string>& tenant) override;

 private:
  const std::shared_ptr<model::BlockTier> below_;
  const PeerLines lines_;
  const std::shared_ptr<spdlog::logger> log_;
  std::shared_ptr<model::TierOffers> offers_;  ///< Without a tier below.
  const std::shared_ptr<std::atomic<uint64_t>> taken_;
  const std::shared_ptr<LineSpeed> speed_;

  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<PeerLine>> peers_;  ///< By worker.
};

}  // namespace outrider::actors
