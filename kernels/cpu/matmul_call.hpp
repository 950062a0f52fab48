#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cpu/buffer.hpp"
#include "kernels/cpu/packed_matrix.hpp"

/// What a call of Ops::matmul consists of: products, how they are cut, and the rows as codes.
namespace outrider::kernels {

/// Multiply-adds that are worth waking a thread for.
inline constexpr size_t k_products_per_item = 65'536;
inline constexpr size_t k_pieces_per_thread = 8;
/// Quantised rows that go over all weights before the next ones do: they stay in L2.
inline constexpr size_t k_row_block_bytes = 400'000;
/// Blocks of rows are whole tiles of any instruction set without planes.
inline constexpr size_t k_tile_rows = 24;

inline size_t ceil_div(size_t a, size_t b) {
  return (a + b - 1) / b;
}

/// One product of a call, cut into items: blocks of rows that stay in cache, times panels.
struct MatmulJob {
  MatmulArgs args;
  size_t panel_count = 0;
  size_t block_rows = 0;
  size_t row_blocks = 0;
  size_t item_panels = 0;
  size_t panel_items = 0;

  size_t items() const { return row_blocks * panel_items; }
  Range rows(size_t item, size_t m) const {
    const size_t begin = item / panel_items * block_rows;
    return {begin, std::min(m, begin + block_rows)};
  }
  Range panels(size_t item) const {
    const size_t begin = item % panel_items * item_panels;
    return {begin, std::min(panel_count, begin + item_panels)};
  }
  /// Panels of one of so many threads that share the product evenly, in pairs.
  Range share(size_t index, size_t shares) const {
    const size_t pairs = ceil_div(panel_count, 2);
    return {std::min(panel_count, pairs * index / shares * 2),
            std::min(panel_count, pairs * (index + 1) / shares * 2)};
  }

  void plan_items(size_t m, uint32_t threads) {
    const size_t tile_rows = args.rows.planes == nullptr ? k_tile_rows : k_plane_rows;
    const size_t fitting = k_row_block_bytes / (std::min(args.k, k_code_k) * sizeof(int16_t));
    row_blocks = ceil_div(m, std::min(fitting, k_code_rows_max) / tile_rows * tile_rows);
    block_rows = ceil_div(ceil_div(m, row_blocks), tile_rows) * tile_rows;
    row_blocks = ceil_div(m, block_rows);
    const size_t products = 16 * args.k * std::min(m, block_rows);
    item_panels = std::max(ceil_div(panel_count * row_blocks, threads * k_pieces_per_thread),
                           k_products_per_item / products);
    item_panels = std::max<size_t>(2, ceil_div(item_panels, 2) * 2);
    panel_items = ceil_div(panel_count, item_panels);
  }
};

/// The products of one call.
struct MatmulCall {
  MatmulJob jobs[2 * k_products_max];
  size_t count = 0;
  bool any_coded = false;
  bool any_float = false;

  void add(const Matrix& w, const Matrix* up, const Product& product, float* y) {
    const auto& matrix = static_cast<const PackedMatrix&>(w);
    MatmulJob& job = jobs[count++];
    job.args = {.panels = matrix.data(),
                .up_panels = up == nullptr ? nullptr : static_cast<const PackedMatrix*>(up)->data(),
                .panel_bytes = matrix.panel_bytes(),
                .kind = matrix.kind(),
                .n = matrix.rows(),
                .k = matrix.cols(),
                .bias = product.bias,
                .accumulate = product.accumulate,
                .y = y};
    job.panel_count = matrix.panels();
    (panel_layout(matrix.kind()).super != 0 ? any_coded : any_float) = true;
  }
  size_t panels() const {
    size_t sum = 0;
    for (size_t i = 0; i < count; ++i) sum += jobs[i].panel_count;
    return sum;
  }
};

/// Rows as codes; the memory only ever grows.
struct CodedRows {
  std::vector<int16_t> codes;
  std::vector<float> sums;
  std::vector<float> scales;
  Buffer planes = make_buffer(0);
  size_t planes_bytes = 0;

  void reserve(size_t m, size_t k) {
    if (codes.size() < m * k) codes.resize(m * k);
    if (sums.size() < m * (k / k_sum_group)) sums.resize(m * (k / k_sum_group));
    if (scales.size() < m) scales.resize(m);
  }
  void reserve_planes(size_t m, size_t k) {
    const size_t bytes = ceil_div(m, k_plane_rows) * planes_stride(k);
    if (planes_bytes < bytes) planes = make_buffer(planes_bytes = bytes);
  }
  /// From 16 rows to the next.
  static size_t planes_stride(size_t k) { return k / k_sum_group * k_plane_block_bytes; }
  QuantizedRows view() const { return {codes.data(), sums.data(), scales.data()}; }
};

}  // namespace outrider::kernels
