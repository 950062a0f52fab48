#pragma once

#include "kernels/cuda/weight_units.hpp"

/// Products of rows with packed matrices, by tensor cores (mma.m16n8k16: halves, sums in float).
///
/// The order of an output, whatever the rows, tiles and blocks of the call: k goes in groups of 32
/// (Q6_K: 16), ascending. A group's codes, exact in half, times the row's halves are summed by one
/// mma after the other from zero; then total = fma(sum, scale, total), with offsets
/// total = fma(the row's sum, offset, total). A segment of 512 k begins again from zero; segments
/// are added in ascending order. At the end times the row's inverse, plus bias, plus old y.
/// So decode, verification and prefill give the same bits, and so does each split over blocks.
namespace outrider::kernels::cuda {

inline constexpr uint32_t k_segment_units = 8;
inline constexpr uint32_t k_targets_max = 8;

/// y = W x of one matrix.
struct ProductTarget {
  MatrixView w;
  const float* bias = nullptr;
  float* y = nullptr;  ///< [m, outputs]
  bool accumulate = false;
  uint32_t first_block = 0;  ///< in x of the launch
  size_t workspace_at = 0;   ///< floats; its [segments][m][outputs], where segments are split
};

struct Products {
  ProductTarget targets[k_targets_max];
  uint32_t count = 0;
  WeightType weight_type = WeightType::f32;  ///< of all targets
  uint32_t m = 0;
  uint32_t units = 0;              ///< of k
  const uint16_t* x = nullptr;     ///< as RowTiles says
  const float* sums = nullptr;     ///< likewise, where offsets are
  const float* inverse = nullptr;  ///< [m]
  float* workspace = nullptr;      ///< null: a block takes all segments
  uint32_t segments_of_block = 0;  ///< consecutive, z of the launch chooses which

  OUTRIDER_KERNEL uint32_t segments() const {
    return (units + k_segment_units - 1) / k_segment_units;
  }
  OUTRIDER_KERNEL const ProductTarget& target_of(uint32_t block) const {
    uint32_t i = 0;
    while (i + 1 < count && targets[i + 1].first_block <= block) ++i;
    return targets[i];
  }
  /// What becomes of a finished sum.
  OUTRIDER_KERNEL void finish(const ProductTarget& target, uint32_t row, uint32_t output,
                              float total) const {
    if (row >= m || output >= target.w.outputs) return;
    float* const y = target.y + size_t{row} * target.w.outputs + output;
    float value = total * inverse[row];
    if (target.bias != nullptr) value += target.bias[output];
    if (target.accumulate) value += *y;
    *y = value;
  }
};

/// Adds the segments that ManyRows left in the workspace, in ascending order. A thread an output;
/// blocks: x 256 outputs of a target, y a row, z the target.
struct AddSegments : Products {
  static constexpr uint32_t k_threads = 256;

  AddSegments() = default;
  explicit AddSegments(const Products& call) : Products(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = targets[block.z()];
    block.threads([&](uint32_t t) {
      const uint32_t output = block.x() * k_threads + t;
      const uint32_t row = block.y();
      if (output >= target.w.outputs) return;
      float total = 0;
      for (uint32_t s = 0; s < segments(); ++s) {
        total += workspace[target.workspace_at + (size_t{s} * m + row) * target.w.outputs + output];
      }
      finish(target, row, output, total);
    });
  }
};

}  // namespace outrider::kernels::cuda
