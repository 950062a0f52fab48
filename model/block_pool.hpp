#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace outrider::model {

/// Ids and reference counts of the fixed blocks of a KV pool; the memory is the owner's. The order
/// of ids is a pure function of the calls: the block freed last is handed out first, fresh ones in
/// ascending order. Not thread-safe; owned by a KvCache.
class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);

  uint32_t total() const { return static_cast<uint32_t>(refs_.size()); }
  uint32_t free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t used() const { return total() - free(); }

  /// A block with one reference, or nothing when all are in use.
  std::optional<int32_t> allocate();
  /// Adds a reference to a block in use.
  void ref(int32_t id);
  /// Drops one; the last one frees the block.
  void unref(int32_t id);
  /// 0 for a free block.
  uint32_t refs(int32_t id) const;

  /// Aborts unless the free list holds exactly the blocks without references, each once, and
  /// block i has `expected[i]` references.
  void check_conservation(std::span<const uint32_t> expected) const;

 private:
  std::vector<uint32_t> refs_;  ///< [total]
  std::vector<int32_t> free_;   ///< a stack
};

}  // namespace outrider::model
