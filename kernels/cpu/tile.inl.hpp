#pragma once

#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// acc[r][16 p + lane] += sum over k of strip[p][k][lane] * x[r][k], ascending in k, one FMA each.
/// Widths and strides are in floats.
struct Tile {
  const float* strip;
  size_t panel_stride;
  const float* x;
  size_t x_stride;
  size_t k;
  float* acc;
  size_t acc_stride;
  bool from_zero;  ///< acc is not read
};

template <size_t rows, size_t panels>
OUTRIDER_INLINE void tile_body(const Tile& t) {
  Vec acc[rows][panels];
#pragma GCC unroll 8
  for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) {
      acc[r][p] = t.from_zero ? zero() : load(t.acc + r * t.acc_stride + 16 * p);
    }
  }
  const float* strip = t.strip;
  for (size_t k = 0; k < t.k; ++k) {
    Vec w[panels];
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) w[p] = load(strip + p * t.panel_stride);
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r) {
      const Vec x = broadcast(t.x[r * t.x_stride + k]);
#pragma GCC unroll 4
      for (size_t p = 0; p < panels; ++p) acc[r][p] = fma(w[p], x, acc[r][p]);
    }
    strip += 16;
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) store(t.acc + r * t.acc_stride + 16 * p, acc[r][p]);
  }
}

template <size_t rows, size_t panels>
[[gnu::noinline]] static void tile(const Tile& t) {
  tile_body<rows, panels>(t);
}

using TileFunction = void (*)(const Tile&);

/// Tiles of 1 … tallest rows, by number of rows less one.
template <size_t tallest, size_t panels>
struct TileTable {
  TileFunction by_rows[tallest > 0 ? tallest : 1] = {};
  constexpr TileTable() { fill<tallest>(); }

 private:
  template <size_t rows>
  constexpr void fill() {
    if constexpr (rows > 0) {
      by_rows[rows - 1] = tile<rows, panels>;
      fill<rows - 1>();
    }
  }
};

// k_rows_*: the tallest tile of 1, 2 and 4 panels that this instruction set has registers for.
static constexpr TileTable<k_rows_1, 1> k_tiles_1;
static constexpr TileTable<k_rows_2, 2> k_tiles_2;
static constexpr TileTable<k_rows_4, 4> k_tiles_4;

/// A tile of any number of rows and panels. The cut into tiles does not show in the result.
static void run_tiles(const Tile& whole, size_t rows, size_t panels) {
  for (size_t p = 0; p < panels;) {
    const size_t left = panels - p;
    const size_t width = rows <= k_rows_4 && left >= 4              ? 4
                         : left >= 2 && k_rows_2 >= min_of(rows, 3) ? 2
                                                                    : 1;
    const TileFunction* table = width == 4   ? k_tiles_4.by_rows
                                : width == 2 ? k_tiles_2.by_rows
                                             : k_tiles_1.by_rows;
    const size_t tallest = width == 4 ? k_rows_4 : width == 2 ? k_rows_2 : k_rows_1;
    for (size_t r = 0; r < rows;) {
      const size_t height = min_of(rows - r, tallest);
      Tile part = whole;
      part.strip += p * whole.panel_stride;
      part.x += r * whole.x_stride;
      part.acc += r * whole.acc_stride + 16 * p;
      table[height - 1](part);
      r += height;
    }
    p += width;
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
