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
#include "base/shared_bytes.hpp"
#include "base/spsc_queue.hpp"

namespace outrider::model {

/// One full block as it leaves the pool: the hot bytes, so that what comes back has the same bits.
struct TierBlock {
  BlockId id{};
  BlockId parent{};    ///< the id before it in its chain, or the root
  uint32_t depth = 0;  ///< blocks before it in its chain
  std::vector<int32_t> tokens;
  SharedBytes k;  ///< [layers][kv_heads][KvGeometry::head_k_bytes]
  SharedBytes v;  ///< [layers][kv_heads][KvGeometry::head_v_bytes]
};

/// Where blocks are below the pool: in memory of the host, on a disk, with another target.
enum class TierLevel : uint8_t { warm, cold, peer };
inline constexpr size_t k_tier_levels = 3;

/// Which levels want to have a block.
struct TierWants {
  bool warm = false;
  bool cold = false;

  bool any() const { return warm || cold; }
  friend bool operator==(const TierWants&, const TierWants&) = default;
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

/// A block that a request uses; it has keys and values from when it is `put`.
struct TierOffer {
  TierBlock block;
  std::shared_ptr<const TierRetention> retention;
  TierWants wants;
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

/// A verified block. Bytes of the warm level are memory from `kernels::Ops::allocate_host`.
struct TierLoadedBlock {
  SharedBytes k;
  SharedBytes v;
  TierLevel level = TierLevel::cold;
};

/// Where the warm level wants to have a block's bytes.
struct WarmRoom {
  std::shared_ptr<std::byte> memory;  ///< From `kernels::Ops::allocate_host`; null: there is none.
  bool is_there = false;              ///< It has the block.
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
  /// Notes that consecutive blocks of a chain were used or computed by a request that has them kept
  /// like that. Element i says where block i is worth a `put`: where something is asked for,
  /// wherever it is not yet.
  virtual std::vector<TierWants> touch(std::span<const BlockId> chain,
                                       const std::shared_ptr<const TierRetention>& retention) = 0;
  /// `wants` as `touch` said.
  virtual void put(const Digest256& kv_namespace, uint32_t layers, TierOffer offer) = 0;
  /// For so many bytes of this block, which the warm level is to have: a device copies to it while
  /// steps go on.
  virtual WarmRoom warm_room(const BlockId& id, size_t bytes) = 0;
  /// Bytes of blocks for the cold level that `put` takes now; what comes beyond is lost.
  virtual uint64_t room() const = 0;
  /// Blocks that are stored already, or on their way, are to be kept like that from now on.
  virtual void retain(std::vector<BlockId> ids, const TierRetention& retention) = 0;
  virtual void load(TierLoad load, TierHandlers handlers) = 0;
  /// Forgets what the warm level has of a tenant, or of all: the pool has forgotten it.
  virtual void forget_warm(const std::optional<std::string>& tenant) = 0;
};

/// Of a tier that is the cold level.
std::vector<TierWants> cold_wants(const std::vector<bool>& wanted);

/// Tells the tier of all offers that were made, and hands back what it wants.
void settle(TierOffers& offers, BlockTier& tier);

}  // namespace outrider::model
