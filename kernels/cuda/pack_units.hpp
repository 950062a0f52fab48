#pragma once

#include <vector>

#include "kernels/cuda/weight_units.hpp"
#include "kernels/ops.hpp"

/// Brings a matrix into units (weight_units.hpp), in the host's memory.
namespace outrider::kernels::cuda {

/// Where the planes of a matrix stand in its packed bytes. Each begins at a multiple of 256.
struct UnitLayout {
  UnitLayout(WeightType type, size_t rows, size_t cols);

  uint32_t tiles = 0;
  uint32_t units = 0;  ///< of a tile; the last may end in zeros
  size_t high_at = 0, scales_at = 0, tops_at = 0, row_scales_at = 0;
  bool has_row_scales = true;
  size_t bytes = 0;

  MatrixView view(const std::byte* packed, size_t rows) const;
};

/// Writes tile `tile` of a matrix into its `layout.bytes` at `packed`, which begin as zeros.
/// Different tiles may be written at the same time.
void pack_tile(const WeightView& weights, const UnitLayout& layout, uint32_t tile,
               std::byte* packed);

}  // namespace outrider::kernels::cuda
