#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

/// One attention call cut into pieces of work. Chunks that several segments hold in the same blocks
/// are read once for all of them. Reused from call to call, so that a step allocates only when it
/// is larger than all before. The cut does not show in the results.
class AttentionPlan {
 public:
  void build(const KvGeometry& geometry, std::span<const Segment> segments, size_t heads,
             uint32_t threads);

  std::span<const AttentionUnit> units() const { return units_; }
  /// Items in the order of reading.
  std::span<const AttentionItem> items() const { return items_; }
  /// Consecutive items for one thread, about equally costly.
  std::span<const Range> runs() const { return runs_; }
  /// Units whose chunks were given to several items; to be combined when all items are done.
  std::span<const size_t> split_units() const { return split_units_; }

 private:
  /// How the heads of a call form units, and how many queries an item may have.
  struct Shape {
    size_t kv_heads = 0;
    size_t group = 0;  ///< query heads of one kv head
    size_t heads_per_unit = 0;
    size_t rows_per_unit = 0;
    size_t block_tokens = 0;
    size_t window = k_no_window;

    size_t units_per_kv_head() const { return (group + heads_per_unit - 1) / heads_per_unit; }
    /// Of one range of rows.
    size_t units() const { return kv_heads * units_per_kv_head(); }
  };
  /// A segment of so few rows that it is one range of rows; these stand first in units_, as
  /// [unit of the shape][small segment].
  struct Small {
    Segment segment;
    Range shared;  ///< chunks that it has in common with others; before and behind are its own
  };

  AttentionUnit unit(const Segment& segment, size_t row, size_t index) const;
  size_t first_chunk(const Segment& segment, size_t row) const;
  size_t first_whole_chunk(const Segment& segment) const;
  bool before(const Small& a, const Small& b) const;
  size_t split_late(size_t begin, size_t end, size_t chunk, size_t end_chunk);
  bool same_chunk(const Small& a, const Small& b, size_t chunk) const;
  void share(size_t begin, size_t end, size_t chunk);
  void add_shared(size_t begin, size_t end, size_t first_chunk, size_t end_chunk);
  void add_small_units();
  void add_large(const Segment& segment);
  void cut_runs(size_t runs);
  void place_partials(size_t floats);

  size_t queries(const AttentionItem& item) const;
  size_t chunk_cost(const AttentionItem& item) const;

  Shape shape_;
  std::vector<Small> small_;
  std::vector<AttentionUnit> units_;
  std::vector<AttentionItem> works_;  ///< not yet cut
  std::vector<AttentionItem> items_;
  std::vector<Range> runs_;
  std::vector<size_t> split_units_;
  std::vector<float> partials_;
};

}  // namespace outrider::kernels
