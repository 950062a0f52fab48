#pragma once

#include <array>

#include "kernels/cuda/device.hpp"

/// How products are cut into blocks for a device. Pure; no result depends on it.
namespace outrider::kernels::cuda {

/// Rows that FewRows takes; more are ManyRows', in tiles of 16 to 128.
inline constexpr uint32_t k_few_rows_max = 8;
inline constexpr uint32_t k_tile_rows_max = 128;
/// Floats that split segments may take.
inline constexpr size_t k_workspace_floats_max = size_t{16} << 20;

/// The products of a call whose weights have one type.
struct ProductPlan {
  bool few = true;
  Products call;
  uint32_t nt = 0;  ///< of ManyRows
  Launch launch;
  size_t workspace_floats = 0;  ///< 0: a block takes all segments
  Launch add;                   ///< of AddSegments, where there is a workspace
};

/// `targets` (count of them) all have this type and `units`; `call` has what they share, but for
/// the workspace.
ProductPlan plan_products(const Products& call, uint32_t multiprocessors);

/// Shared memory of a block that any plan asks for; a device with less is of no use.
size_t products_shared_bytes_max();

/// The most that a plan's `workspace_floats` may be for so many units of k.
size_t workspace_floats_max(size_t units, uint32_t multiprocessors);

/// Rows of a tile of RowTiles for m rows, and the rows that whole tiles have room for.
uint32_t tile_rows(uint32_t m);
uint32_t padded_rows(uint32_t m);

}  // namespace outrider::kernels::cuda
