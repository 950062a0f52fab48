#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_id.hpp"
#include "base/limits.hpp"
#include "base/request.hpp"
#include "model/block_tier.hpp"
#include "model/engine.hpp"
#include "model/kv_cache.hpp"

namespace outrider::model {

/// Blocks on their way from the tier into the pool, asked for by one choice. Others that want the
/// same blocks wait for it, too.
struct TierRead {
  std::vector<BlockId> chain;  ///< from the root to the last block asked for
  uint64_t owner = 0;          ///< of the chain's blocks
  uint32_t next = 0;           ///< chain[next] is inserted next
  uint32_t inserted = 0;       ///< blocks
  bool ended = false;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

/// An engine's traffic with the tier below its pool. Blocks come in between steps; what is to go
/// out is copied a little per step. Belongs to the engine's thread; only the offers and the mailbox
/// of what was read are shared with the tier's threads.
class TierWork {
 public:
  /// So many blocks may wait for the tier to look at them, and as many to be stored.
  TierWork(std::shared_ptr<BlockTier> tier, std::shared_ptr<kernels::Ops> ops, KvCache& cache,
           const Digest256& kv_namespace, size_t outgoing_max = limits::kv_outgoing_blocks_max);
  /// Reads that are under way end by themselves; what they give is dropped.
  ~TierWork();
  TierWork(const TierWork&) = delete;
  TierWork& operator=(const TierWork&) = delete;

  /// Called on the tier's threads whenever something came; replaces the one before.
  void on_arrival(std::function<void()> wake);

  struct Wish {
    std::span<const BlockId> chain;  ///< from the root
    uint64_t owner = 0;              ///< of its blocks, in the pool's index
    uint32_t first = 0;              ///< block asked for first: those before it are in the pool
    std::optional<Duration> recompute;
    std::optional<Duration> timeout;
    std::optional<TierPeer> peer;  ///< but for its tokens
  };
  /// The read that brings chain[first], if one is under way already.
  std::shared_ptr<TierRead> under_way(const BlockId& id) const;
  /// Asks for chain[first …]; `token` gives each position's. Null if the tier has nothing to give.
  std::shared_ptr<TierRead> read(const Wish& wish, const std::function<int32_t(uint32_t)>& token);
  /// Puts what came into the pool's index, about `bytes_max` bytes of it.
  void absorb(uint64_t bytes_max);

  /// Blocks chain[first …] are used (or were computed) by a request: what the tier wants of them is
  /// stored soon.
  void used(std::span<const BlockId> chain, uint32_t first, const BlockId& root,
            const std::shared_ptr<const TierRetention>& retention,
            const std::function<int32_t(uint32_t)>& token);
  /// Hands blocks to the tier, about `bytes_max` bytes of them, as far as it has room.
  void store(uint64_t bytes_max);

  TierCounters counters() const;
  /// Blocks that the tier has not looked at, or that wait to be stored.
  size_t outgoing() const { return offers_->made.size() + offers_->wanted.size(); }

 private:
  struct Arrival {
    std::shared_ptr<TierRead> read;
    std::vector<TierLoadedBlock> blocks;
    bool done = false;
  };
  /// Between the tier's threads and the engine's. Outlives the engine as long as reads do.
  struct Mailbox {
    std::mutex mutex;
    std::vector<Arrival> arrivals;
    uint64_t bytes = 0;  ///< of all that is not in the pool yet
    bool closed = false;
    std::function<void()> wake;

    void push(Arrival arrival);
  };
  void collect();
  void insert(TierRead& read, std::span<const TierLoadedBlock> blocks);
  void end(TierRead& read);
  void read_tokens(uint32_t block, const std::function<int32_t(uint32_t)>& token,
                   std::vector<int32_t>& tokens) const;

  std::shared_ptr<BlockTier> tier_;
  std::shared_ptr<kernels::Ops> ops_;
  KvCache& cache_;
  Digest256 kv_namespace_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::deque<Arrival> arrived_;
  std::unordered_map<BlockId, std::shared_ptr<TierRead>, BlockIdHash> wanted_;  ///< still to come
  std::shared_ptr<TierOffers> offers_;
  TierCounters counters_;
};

}  // namespace outrider::model
