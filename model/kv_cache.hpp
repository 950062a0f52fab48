#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/block_pool.hpp"
#include "model/prefix_index.hpp"

namespace outrider::model {

class KvCache;

/// Keys and values of one sequence: positions 0 … length-1 in the blocks of its table. Forks share
/// blocks, and so do sequences that took them from the index; whoever appends to a shared, partly
/// filled last block gets its own copy first. Leading blocks that were published or taken are the
/// index's own: whoever holds a block of the index holds its ancestors. Returns its blocks when it
/// goes, the last one first; must not outlive its cache. Moves, does not copy.
class KvSequence {
 public:
  explicit KvSequence(KvCache& cache) : cache_(&cache) {}
  ~KvSequence() { reset(); }
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  uint32_t length() const { return length_; }
  /// Leading blocks that are in the index.
  uint32_t published() const { return published_; }
  /// Pool index of each block. Valid until the next append, crop, reset or move.
  std::span<const int32_t> table() const { return table_; }

  /// Blocks that `append(tokens)` would take from the pool.
  uint32_t blocks_for(uint32_t tokens) const;
  /// Blocks that no other sequence holds: what `reset` would make available.
  uint32_t exclusive_blocks() const;
  /// The last block is partly filled and shared: the next append copies it.
  bool shared_tail() const;

  /// Makes room for positions length … length + tokens - 1, to be written by kernels::kv_append.
  /// False, and nothing has changed, when the pool has too few free blocks.
  bool append(uint32_t tokens);
  /// Goes on with the blocks that the index has for `ids`: the sequence ends where they begin.
  void take(std::span<const BlockId> ids);
  /// Goes on with that block of the index and those between: it comes behind what the sequence has.
  void take_up_to(int32_t block);
  /// The first full block that is not published holds computed keys and values, and its content is
  /// `id`, which names its owner, too: from now on others can take it. Where the index has that
  /// content already, the sequence goes on with the index's block and gives its own back: their
  /// bits are the same.
  void publish(const BlockId& id, uint64_t owner);
  /// Forgets positions from `length` on.
  void crop(uint32_t length);
  void reset() { crop(0); }
  KvSequence fork() const;

 private:
  KvCache* cache_;
  std::vector<int32_t> table_;
  uint32_t length_ = 0;     ///< positions
  uint32_t published_ = 0;  ///< blocks
};

/// The paged pool on the device of `ops`: memory, block counts, geometry, and the index of what was
/// published, which holds one reference to each of its blocks and loses idle ones when free blocks
/// run out, pinned ones last. A block is zeroed before it is handed out, so that nothing of another
/// sequence (not even an infinity) can be read in it. Pinned: sequences point to it. Not
/// thread-safe; owned by the engine.
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
  const PrefixIndex& index() const { return index_; }
  /// Blocks that sequences can get: free ones, and idle ones of the index.
  uint32_t available() const { return pool_.free() + index_.idle(); }
  /// Of leading blocks of a chain, which are all in the index: those that sequences hold.
  uint32_t held(std::span<const BlockId> chain) const;
  /// Makes up to `blocks` idle blocks free, pinned ones last; how many it was.
  uint32_t evict(uint32_t blocks);
  struct Reset {
    uint32_t forgotten = 0;  ///< blocks that are free now
    uint32_t held = 0;       ///< blocks that sequences hold: they stay in the index
  };
  /// As the index forgets.
  Reset forget(std::optional<uint64_t> owner);
  /// For measurements: from now on new blocks hold these numbers, [block_tokens, kv_heads *
  /// head_dim] of each layer, for keys and for values. Empty: zeros, as at the start.
  void fill_new_blocks(std::span<const float> numbers);
  /// As in the index.
  bool pin(int32_t block, TimePoint until) { return index_.pin(block, until); }
  void end_pins(TimePoint now) { index_.end_pins(now); }

  /// Aborts unless each block's count is the number of tables that hold it, and one for the index.
  void check_conservation(std::span<const KvSequence* const> sequences) const;

 private:
  friend class KvSequence;
  KvCache(std::shared_ptr<kernels::Ops> ops, const kernels::KvGeometry& geometry, uint32_t blocks,
          kernels::Ops::Buffer memory);
  int32_t blank() const { return static_cast<int32_t>(pool_.total()); }
  int32_t take_blank();
  int32_t take_copy(int32_t from);
  void hold(int32_t id);
  void release(int32_t id);
  uint32_t holders(int32_t id) const { return pool_.refs(id) - (index_.contains(id) ? 1 : 0); }

  std::shared_ptr<kernels::Ops> ops_;
  kernels::KvGeometry geometry_;
  kernels::Ops::Buffer memory_;  ///< [blocks + 1] blocks; the last stays zero
  BlockPool pool_;
  PrefixIndex index_;
};

}  // namespace outrider::model
