#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/block_id.hpp"

namespace outrider::model {

/// Which pool block holds which content, as a forest: a block's parent is the one before it in its
/// sequence. A block is idle while nobody but the index holds it; only idle blocks are evicted,
/// the least recently used leaf first. Whoever holds a block holds its ancestors, too (a pin is a
/// holder), and lets go of the last block first: so ancestors are younger than what hangs on them,
/// and the oldest idle block is a leaf. Not thread-safe; owned by a KvCache.
class PrefixIndex {
 public:
  static constexpr int32_t k_none = -1;

  explicit PrefixIndex(uint32_t blocks);

  uint32_t size() const { return static_cast<uint32_t>(by_id_.size()); }
  uint32_t idle() const { return idle_; }
  uint64_t evictions() const { return evictions_; }

  /// The block with this content, or k_none.
  int32_t find(const BlockId& id) const;
  /// How many leading blocks of the chain are there: whatever is there has its ancestors there.
  uint32_t longest(std::span<const BlockId> chain) const;
  bool contains(int32_t block) const { return entries_[static_cast<size_t>(block)].listed; }
  /// Of a block that is contained; k_none for a first one.
  int32_t parent(int32_t block) const { return entries_[static_cast<size_t>(block)].parent; }

  /// Adds a block that is held. Neither it nor its content may be there; the parent must be.
  void insert(int32_t block, const BlockId& id, int32_t parent);
  /// Somebody holds an idle block again.
  void take(int32_t block);
  /// Nobody holds it any more: it is the youngest idle one.
  void release(int32_t block);
  /// Forgets the oldest idle block and returns it, or k_none.
  int32_t evict();

  /// Aborts unless links, counts of children and the idle list agree, and the idle blocks are those
  /// that have one reference.
  void check(std::span<const uint32_t> refs) const;

 private:
  struct Entry {
    BlockId id{};
    int32_t parent = k_none;
    int32_t older = k_none;  ///< Neighbours among the idle ones.
    int32_t younger = k_none;
    uint32_t children = 0;
    bool listed = false;
    bool is_idle = false;
  };
  Entry& at(int32_t block) { return entries_[static_cast<size_t>(block)]; }

  std::vector<Entry> entries_;  ///< [blocks of the pool]
  std::unordered_map<BlockId, int32_t, BlockIdHash> by_id_;
  int32_t oldest_ = k_none;
  int32_t youngest_ = k_none;
  uint32_t idle_ = 0;
  uint64_t evictions_ = 0;
};

}  // namespace outrider::model
