#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/block_pool.hpp"

namespace outrider::model {

class KvCache;

/// Keys and values of one sequence: positions 0 … length-1 in the blocks of its table. Forks share
/// blocks; whoever appends to a shared, partly filled last block gets its own copy first. Returns
/// its blocks when it goes; must not outlive its cache. Moves, does not copy.
class KvSequence {
 public:
  explicit KvSequence(KvCache& cache) : cache_(&cache) {}
  ~KvSequence() { reset(); }
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  uint32_t length() const { return length_; }
  /// Pool index of each block. Valid until the next append, crop, reset or move.
  std::span<const int32_t> table() const { return table_; }

  /// Blocks that `append(tokens)` would take from the pool.
  uint32_t blocks_for(uint32_t tokens) const;
  /// Blocks that nobody shares: what `reset` would give back.
  uint32_t exclusive_blocks() const;
  /// The last block is partly filled and shared: the next append copies it.
  bool shared_tail() const;

  /// Makes room for positions length … length + tokens - 1, to be written by kernels::kv_append.
  /// False, and nothing has changed, when the pool has too few free blocks.
  bool append(uint32_t tokens);
  /// Forgets positions from `length` on.
  void crop(uint32_t length);
  void reset() { crop(0); }
  KvSequence fork() const;

 private:
  KvCache* cache_;
  std::vector<int32_t> table_;
  uint32_t length_ = 0;  ///< positions
};

/// The paged pool on the device of `ops`: memory, block counts, geometry. A block is zeroed before
/// it is handed out, so that nothing of another sequence (not even an infinity) can be read in it.
/// Pinned: sequences point to it. Not thread-safe; owned by the engine.
class KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> create(std::shared_ptr<kernels::Ops> ops,
                                                 const kernels::KvGeometry& geometry,
                                                 uint32_t blocks);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const kernels::KvGeometry& geometry() const { return geometry_; }
  std::byte* memory() { return memory_.get(); }
  const BlockPool& pool() const { return pool_; }

  /// Aborts unless each block's count is the number of tables that hold it.
  void check_conservation(std::span<const KvSequence* const> sequences) const;

 private:
  friend class KvSequence;
  KvCache(std::shared_ptr<kernels::Ops> ops, const kernels::KvGeometry& geometry, uint32_t blocks,
          kernels::Ops::Buffer memory);
  int32_t take_zeroed();
  int32_t take_copy(int32_t from);

  std::shared_ptr<kernels::Ops> ops_;
  kernels::KvGeometry geometry_;
  kernels::Ops::Buffer memory_;  ///< [blocks + 1] blocks; the last stays zero
  BlockPool pool_;
};

}  // namespace outrider::model
