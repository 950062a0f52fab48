#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
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
  std::vector<BlockId> chain;                      ///< from the root to the last block asked for
  uint64_t owner = 0;                              ///< of the chain's blocks
  uint32_t next = 0;                               ///< chain[next] is copied into the pool next
  std::array<uint32_t, k_tier_levels> inserted{};  ///< blocks, by the level they came from
  bool ended = false;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
};

/// An engine's traffic with the tier below its pool. Blocks come in between steps; what is to go
/// out is copied a little per step. Copies between a device and the warm level run beside steps:
/// blocks that are read are found when they are there, and those that are stored stay in the pool
/// until then. Belongs to the engine's thread; only the offers and the mailbox of what was read are
/// shared with the tier's threads.
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
  /// Waits for the copies under way: the engine has nothing else to do.
  void finish_copies();
  /// Ends the copies under way, and drops what else reads of an owner's blocks (without one: all
  /// reads) bring: the pool's index is to forget the same. Who waits for such a read computes.
  void drop_reads(std::optional<uint64_t> owner);
  /// Behind the pool's index, which forgot the same.
  void forget_warm(const std::optional<std::string>& tenant);

  TierCounters counters() const;
  /// Blocks that the tier has not looked at, or that wait to be stored.
  size_t outgoing() const {
    return offers_->made.size() + offers_->wanted.size() + leaving_.size() + owed_.size();
  }
  /// Nothing waits for a step.
  bool idle() const { return outgoing() == 0 && entering_.empty(); }
  /// Blocks that copies under way hold.
  std::vector<const KvSequence*> holders() const;

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
  /// A block on its way out of the pool, which keeps it.
  struct Leaving {
    TierOffer offer;
    std::shared_ptr<KvSequence> held;  ///< ends with it, or with one behind it; null: it is copied
    std::unique_ptr<kernels::Copy> copy;  ///< null: likewise
  };
  /// Blocks of one read on their way into the pool: of one sequence, which ends with the last.
  struct Entering {
    struct Block {
      TierLoadedBlock from;
      std::unique_ptr<kernels::Copy> copy;  ///< null: it is there
    };
    std::shared_ptr<TierRead> read;
    KvSequence sequence;
    std::deque<Block> blocks;  ///< the first ones of the sequence that are not published
    bool done = false;         ///< nothing more comes
  };
  void collect();
  size_t insert(const std::shared_ptr<TierRead>& read, std::span<const TierLoadedBlock> blocks);
  void publish(Entering& entering);
  void publish_all();
  Entering* entering_of(const TierRead& read);
  size_t entering_blocks() const;
  void end(TierRead& read);
  bool start_leaving(const TierOffer& offer);
  void leave(TierOffer offer);
  void owe(const TierOffer& offer);
  void pay_owed();
  bool has_room() const;
  std::shared_ptr<KvSequence> hold(int32_t block) const;
  void hand_over();
  void read_tokens(uint32_t block, const std::function<int32_t(uint32_t)>& token,
                   std::vector<int32_t>& tokens) const;

  std::shared_ptr<BlockTier> tier_;
  std::shared_ptr<kernels::Ops> ops_;
  KvCache& cache_;
  Digest256 kv_namespace_;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::deque<Arrival> arrived_;
  std::list<Entering> entering_;
  std::deque<Leaving> leaving_;
  std::deque<TierOffer> owed_;  ///< To the cold level, which has no room: to be kept as asked for.
  std::unordered_map<BlockId, std::shared_ptr<TierRead>, BlockIdHash> wanted_;  ///< still to come
  std::shared_ptr<TierOffers> offers_;
  TierCounters counters_;
};

}  // namespace outrider::model
