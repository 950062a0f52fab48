#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {

/// One attention call cut into pieces of work. Reused from call to call, so that a step allocates
/// only when it is larger than all before. The cut does not show in the results.
class AttentionPlan {
 public:
  void build(const KvGeometry& geometry, std::span<const Segment> segments, size_t heads,
             uint32_t threads);

  /// Items in the order of reading.
  std::span<const AttentionItem> items() const { return items_; }
  /// Consecutive items for one thread, about equally costly.
  std::span<const Range> runs() const { return runs_; }
  /// Units whose chunks were given to several items; to be combined when all items are done.
  std::span<const AttentionItem> split_units() const { return split_units_; }

 private:
  void add_units(const KvGeometry& geometry, const Segment& segment, size_t heads);
  void cut_runs(size_t runs);
  /// `floats` of one partial result.
  void place_partials(size_t floats);

  std::vector<AttentionItem> units_;
  std::vector<AttentionItem> items_;
  std::vector<Range> runs_;
  std::vector<AttentionItem> split_units_;
  std::vector<float> partials_;
};

}  // namespace outrider::kernels
