#pragma once

#include "kernels/cuda/weight_units.hpp"

/// Products of rows with packed matrices, by tensor cores (mma.m16n8k16: halves, sums in float).
///
/// The order of an output, whatever the rows, tiles and blocks of the call: segments of 512 k, each
/// from zero by one mma of 16 k after the other, ascending, of the row's halves with the weights'
/// (LaneUnit::fragment); segments are added in ascending order. At the end times the
/// weights' row scale and the row's inverse, plus bias, plus old y. So decode, verification and
/// prefill give the same bits, and so does each split over blocks.
namespace outrider::kernels::cuda {

inline constexpr uint32_t k_segment_units = 8;
inline constexpr uint32_t k_targets_max = 8;

/// y = W x of one matrix.
struct ProductTarget {
  OUTRIDER_KERNEL float scale_of(uint32_t output) const {
    return w.row_scales != nullptr ? w.row_scales[output] : 1.0f;
  }
  /// Adding the zero changes no number: minus zero becomes zero, whoever adds.
  OUTRIDER_KERNEL float bias_of(uint32_t output) const {
    return bias != nullptr ? bias[output] : 0.0f;
  }

  MatrixView w;
  const float* bias = nullptr;
  float* y = nullptr;  ///< [m, outputs]
  bool accumulate = false;
  uint32_t first = 0;       ///< of all targets' tiles (few rows) or blocks of tiles (many)
  size_t workspace_at = 0;  ///< floats; its [segments][m][outputs], where segments are split
};

struct Products {
  ProductTarget targets[k_targets_max];
  uint32_t count = 0;
  WeightType weight_type = WeightType::f32;  ///< of all targets
  uint32_t m = 0;
  uint32_t units = 0;                ///< of k
  const uint16_t* x = nullptr;       ///< as RowTiles says
  const float* inverse = nullptr;    ///< [m]
  float* workspace = nullptr;        ///< null: a block takes all segments
  uint32_t segments_of_block = 0;    ///< many rows: consecutive, z of the launch chooses which
  uint32_t blocks = 0;               ///< few rows: that share the tiles
  uint32_t warps = 0;                ///< few rows: of a block
  uint64_t segments_reciprocal = 0;  ///< few rows: times 2^32, rounded up

  OUTRIDER_ALSO_KERNEL uint32_t segments() const {
    return (units + k_segment_units - 1) / k_segment_units;
  }
  /// Which one a tile or block of tiles belongs to.
  OUTRIDER_KERNEL uint32_t target_of(uint32_t tile) const {
    uint32_t i = 0;
    while (i + 1 < count && targets[i + 1].first <= tile) ++i;
    return i;
  }
  /// What becomes of a finished sum, before it is added to what is there: `scale` and `bias` are
  /// the output's, `inverse` the row's.
  OUTRIDER_KERNEL static float finished(float total, float scale, float inverse, float bias) {
    return total * scale * inverse + bias;
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
      float* const y = target.y + size_t{row} * target.w.outputs + output;
      const float value =
          finished(total, target.scale_of(output), inverse[row], target.bias_of(output));
      *y = target.accumulate ? value + *y : value;
    });
  }
};

}  // namespace outrider::kernels::cuda
