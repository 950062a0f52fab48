#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/block_id.hpp"
#include "base/clock.hpp"

namespace outrider::model {

/// Which pool block holds which content, as a forest: a block's parent is the one before it in its
/// sequence, and of the same owner. A block is idle while nobody but the index holds it; only idle
/// blocks are evicted, the least recently used leaf first, pinned ones when no other is left.
/// Whoever holds a block holds its ancestors, too, and lets go of the last block first; a pin ends
/// no sooner than those of the blocks behind it. So ancestors are younger than what hangs on them,
/// and the oldest idle block, of the pinned and of the others, is a leaf. Not thread-safe; owned by
/// a KvCache.
class PrefixIndex {
 public:
  static constexpr int32_t k_none = -1;

  /// At most `pins_max` of the pool's `blocks` are pinned at a time, and half as many by one owner.
  PrefixIndex(uint32_t blocks, uint32_t pins_max);

  uint32_t size() const { return static_cast<uint32_t>(by_id_.size()); }
  uint32_t idle() const { return idle_[0].size + idle_[1].size; }
  uint32_t pinned() const { return static_cast<uint32_t>(pins_.size()); }
  uint64_t evictions() const { return evictions_; }
  uint64_t pins_evicted() const { return pins_evicted_; }
  uint64_t pins_ended() const { return pins_ended_; }

  /// The block with this content, or k_none.
  int32_t find(const BlockId& id) const;
  /// How many leading blocks of the chain are there: whatever is there has its ancestors there.
  uint32_t longest(std::span<const BlockId> chain) const;
  bool contains(int32_t block) const { return entries_[static_cast<size_t>(block)].listed; }
  /// Of a block that is contained; k_none for a first one.
  int32_t parent(int32_t block) const { return entries_[static_cast<size_t>(block)].parent; }

  /// Adds a block that is held. Neither it nor its content may be there; the parent must be, and
  /// be the same owner's.
  void insert(int32_t block, const BlockId& id, int32_t parent, uint64_t owner);
  /// Somebody holds an idle block again.
  void take(int32_t block);
  /// Nobody holds it any more: it is the youngest idle one.
  void release(int32_t block);
  /// Forgets the oldest idle block that is not pinned, or else the oldest idle one, and returns it,
  /// or k_none.
  int32_t evict();
  struct Forgotten {
    std::vector<int32_t> blocks;
    uint32_t held = 0;  ///< Blocks of the owner that stay.
  };
  /// Forgets all idle blocks of an owner, or of all, pinned ones too.
  Forgotten forget(std::optional<uint64_t> owner);

  /// Pins a block that is held until then at least. False, and nothing has changed, where its
  /// parent is not pinned as long, or too many are pinned, of all or of its owner.
  bool pin(int32_t block, TimePoint until);
  /// Pins whose time has come end; their idle blocks are the youngest of the others.
  void end_pins(TimePoint now);

  /// Aborts unless links, counts of children, pins and idle lists agree, and the idle blocks are
  /// those that have one reference.
  void check(std::span<const uint32_t> refs) const;

 private:
  struct Entry {
    BlockId id{};
    int32_t parent = k_none;
    int32_t older = k_none;  ///< Neighbours among the idle ones of its list.
    int32_t younger = k_none;
    uint32_t children = 0;
    uint32_t depth = 0;  ///< Ancestors.
    bool listed = false;
    bool is_idle = false;
    std::optional<TimePoint> pinned_until;
    uint64_t owner = 0;
  };
  struct IdleList {
    int32_t oldest = k_none;
    int32_t youngest = k_none;
    uint32_t size = 0;
  };
  /// In the order in which pins end: of a chain the last block first.
  using Pin = std::tuple<TimePoint, uint32_t, int32_t>;

  Entry& at(int32_t block) { return entries_[static_cast<size_t>(block)]; }
  const Entry& at(int32_t block) const { return entries_[static_cast<size_t>(block)]; }
  IdleList& list_of(const Entry& entry) { return idle_[entry.pinned_until ? 1 : 0]; }
  Pin pin_of(int32_t block) const;
  void unpin(int32_t block);
  /// An idle block without children leaves the index.
  void remove(int32_t block);
  void link(int32_t block);
  void unlink(int32_t block);
  void check_entries(std::span<const uint32_t> refs) const;
  void check_list(bool pinned) const;

  std::vector<Entry> entries_;  ///< [blocks of the pool]
  std::unordered_map<BlockId, int32_t, BlockIdHash> by_id_;
  std::array<IdleList, 2> idle_;  ///< Not pinned, pinned.
  std::set<Pin> pins_;
  std::unordered_map<uint64_t, uint32_t> pins_by_;  ///< of each owner that has any
  uint32_t pins_max_;
  uint64_t evictions_ = 0;
  uint64_t pins_evicted_ = 0;
  uint64_t pins_ended_ = 0;  ///< by `end_pins`
};

}  // namespace outrider::model
