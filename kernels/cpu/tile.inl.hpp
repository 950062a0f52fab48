#pragma once

#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// Weights of a tile as floats, converted before: panel p, step k at at[p * panel_stride + 16 k].
struct Strip {
  const float* at;
  size_t panel_stride;

  [[gnu::always_inline]] Vec weight(size_t p, size_t k) const {
    return load(at + p * panel_stride + 16 * k);
  }
  [[gnu::always_inline]] Strip from_panel(size_t p) const {
    return {at + p * panel_stride, panel_stride};
  }
};

/// acc[r][16 p + lane] += sum over k of weight(p, k)[lane] * x[r][k], ascending in k, one FMA each.
/// Strides are in floats.
template <class Weights>
struct Tile {
  Weights weights;
  const float* x;
  size_t x_stride;
  size_t k;
  float* acc;
  size_t acc_stride;
  bool from_zero;  ///< acc is not read
};

template <class Weights, size_t rows, size_t panels>
[[gnu::noinline]] static void tile(const Tile<Weights>& t) {
  const Weights weights = t.weights;
  const float* x = t.x;
  Vec acc[rows][panels];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) {
      acc[r][p] = t.from_zero ? zero() : load(t.acc + r * t.acc_stride + 16 * p);
    }
  }
  for (size_t k = 0; k < t.k; ++k) {
    Vec w[panels];
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) w[p] = weights.weight(p, k);
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; ++r) {
      const Vec value = broadcast(x[r * t.x_stride + k]);
#pragma GCC unroll 4
      for (size_t p = 0; p < panels; ++p) acc[r][p] = fma(w[p], value, acc[r][p]);
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) store(t.acc + r * t.acc_stride + 16 * p, acc[r][p]);
  }
}

/// Tiles of 1 … tallest rows, by number of rows less one.
template <class Weights, size_t tallest, size_t panels>
struct TileTable {
  using Function = void (*)(const Tile<Weights>&);
  Function by_rows[tallest > 0 ? tallest : 1] = {};
  constexpr TileTable() { fill<tallest>(); }

 private:
  template <size_t rows>
  constexpr void fill() {
    if constexpr (rows > 0) {
      by_rows[rows - 1] = tile<Weights, rows, panels>;
      fill<rows - 1>();
    }
  }
};

// k_rows_*: the tallest tile of 1, 2 and 4 panels that this instruction set has registers for.
template <class Weights>
static constexpr TileTable<Weights, k_rows_1, 1> k_tiles_1;
template <class Weights>
static constexpr TileTable<Weights, k_rows_2, 2> k_tiles_2;
template <class Weights>
static constexpr TileTable<Weights, k_rows_4, 4> k_tiles_4;

/// A tile of any number of rows and panels. The cut into tiles does not show in the result.
template <class Weights>
static void run_tiles(const Tile<Weights>& whole, size_t rows, size_t panels) {
  for (size_t p = 0; p < panels;) {
    const size_t left = panels - p;
    const size_t width = rows <= k_rows_4 && left >= 4              ? 4
                         : left >= 2 && k_rows_2 >= min_of(rows, 3) ? 2
                                                                    : 1;
    const auto* table = width == 4   ? k_tiles_4<Weights>.by_rows
                        : width == 2 ? k_tiles_2<Weights>.by_rows
                                     : k_tiles_1<Weights>.by_rows;
    const size_t tallest = width == 4 ? k_rows_4 : width == 2 ? k_rows_2 : k_rows_1;
    for (size_t r = 0; r < rows;) {
      const size_t height = min_of(rows - r, tallest);
      Tile<Weights> part = whole;
      part.weights = whole.weights.from_panel(p);
      part.x += r * whole.x_stride;
      part.acc += r * whole.acc_stride + 16 * p;
      table[height - 1](part);
      r += height;
    }
    p += width;
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
