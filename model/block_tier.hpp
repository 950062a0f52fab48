#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/block_id.hpp"
#include "base/clock.hpp"
#include "base/spsc_queue.hpp"

namespace outrider::model {

/// One full block as it leaves the pool: the hot bytes, so that what comes back has the same bits.
struct TierBlock {
  BlockId id{};
  BlockId parent{};    ///< the id before it in its chain, or the root
  uint32_t depth = 0;  ///< blocks before it in its chain
  std::vector<int32_t> tokens;
  std::vector<std::byte> k;  ///< [layers][kv_heads][KvGeometry::head_k_bytes]
  std::vector<std::byte> v;  ///< [layers][kv_heads][KvGeometry::head_v_bytes]
};

/// How long a request's blocks are to be kept, and on whose account.
struct TierRetention {
  std::string tenant;  ///< "" is the public one
  bool pin = false;    ///< never makes room
  uint32_t ttl_s = 0;  ///< 0: as long as there is room
  /// Counts blocks that were to be pinned and are not; null: nobody asks.
  std::shared_ptr<std::atomic<uint32_t>> pins_refused = nullptr;

  bool asked_for() const { return pin || ttl_s > 0; }
};

/// A block that a request uses; without keys and values.
struct TierOffer {
  TierBlock block;
  std::shared_ptr<const TierRetention> retention;
};

/// Between the steps of one engine and its tier: neither waits for the other. What does not fit is
/// lost: a block that is not noted, or not stored.
struct TierOffers {
  TierOffers(size_t capacity, uint32_t block_tokens, std::function<void()> when_wanted)
      : made(capacity, blank(block_tokens)),
        wanted(capacity, blank(block_tokens)),
        wake(std::move(when_wanted)) {}

  SpscQueue<TierOffer> made;    ///< by steps, for the tier; leave when the tier is done with them
  SpscQueue<TierOffer> wanted;  ///< by the tier, for the steps to `put`
  std::atomic<uint64_t> lost = 0;    ///< wanted, but `wanted` was full
  const std::function<void()> wake;  ///< called by the tier when it wanted some

 private:
  static TierOffer blank(uint32_t block_tokens) {
    TierOffer offer;
    offer.block.tokens.resize(block_tokens);
    return offer;
  }
};

/// A worker that may have blocks of a request, and what it needs to find them: it names them by a
/// secret of its own.
struct TierPeer {
  uint64_t worker = 0;
  std::string tenant;
  std::string cache_salt;
  std::vector<int32_t> before;  ///< tokens of the blocks before those that are wanted
};

/// Consecutive blocks of one chain that are wanted.
struct TierLoad {
  struct Wanted {
    BlockId id{};
    std::vector<int32_t> tokens;  ///< what it must hold
  };
  Digest256 kv_namespace{};
  uint32_t layers = 0;
  uint64_t block_bytes = 0;
  std::vector<Wanted> blocks;
  std::optional<TierPeer> peer;
  std::optional<Duration> recompute;  ///< of all of them; none: load however long it takes
  std::optional<Duration> timeout;    ///< no read begins later
  std::shared_ptr<const std::atomic<bool>> cancelled;
};

/// A verified block; the bytes stay while `owner` does.
struct TierLoadedBlock {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> k;
  std::span<const std::byte> v;
};

/// `blocks` with the next ones, any number of times, then `done` once: on any thread, one call at a
/// time. A load that reads nothing calls `done` before `load` returns.
struct TierHandlers {
  std::function<void(std::vector<TierLoadedBlock>)> blocks;
  std::function<void()> done;
};

/// What lies below an engine's pool: it takes full blocks and gives them back by content. A cache:
/// whatever goes wrong in it is a miss or a block not stored. Thread-safe; no call waits for a
/// disk, and `look` for nothing at all.
class BlockTier {
 public:
  virtual ~BlockTier() = default;

  /// One engine's offers from now on.
  virtual void serve(std::shared_ptr<TierOffers> offers) = 0;
  /// There are new ones: `settle` them, now or soon, on one thread.
  virtual void look() = 0;
  /// Notes that consecutive blocks of a chain were used or computed. Element i says whether block i
  /// is worth a `put`; `hint`: whatever is not stored yet is.
  virtual std::vector<bool> touch(std::span<const BlockId> chain, bool hint) = 0;
  virtual void put(const Digest256& kv_namespace, uint32_t layers, TierBlock block,
                   const TierRetention& retention) = 0;
  /// Bytes of blocks that `put` takes now; what comes beyond is lost.
  virtual uint64_t room() const = 0;
  /// Blocks that are stored already, or on their way, are to be kept like that from now on.
  virtual void retain(std::vector<BlockId> ids, const TierRetention& retention) = 0;
  virtual void load(TierLoad load, TierHandlers handlers) = 0;
};

/// Tells the tier of all offers that were made, and hands back what it wants.
void settle(TierOffers& offers, BlockTier& tier);

}  // namespace outrider::model
