#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/kv_units.inl.hpp"
#include "kernels/cpu/quantize.inl.hpp"

/// Attention over keys and values of the kinds with scales, by exact integer dots:
///   score = scale of q * sum over groups of 32 elements, ascending, by FMA, of
///           float(sum of code of q * integer of k) * scale of k;
///   value = scale of w * float(sum over the chunk's positions of code of w * integer of v),
///           where w = softmax weight * scale of v, one w per position and group of 32 elements.
/// The codes of q (of a head) and of w (of a chunk and a group, up to the row's own position) have
/// 16 bits and one scale, as QuantizedRows.
namespace outrider::kernels::OUTRIDER_ISA {

/// What products with codes need beside the floats.
struct CodeScratch {
  alignas(64) int16_t q[k_query_floats_max];  ///< [queries, whole_lanes(head_dim)]
  float q_scale[k_queries_max];
  alignas(64) int16_t w[k_queries_max * k_chunk_positions];  ///< [queries, positions] of one group
  float w_scale[k_queries_max];
};

/// Integer sums of `rows` rows of x with two columns of 16 lanes. A single row's sums are split, or
/// each product would wait for the one before.
template <KvKind kind, size_t rows>
struct CodeSums {
  static constexpr size_t chains = rows == 1 ? 2 : 1;
  Ints sum[2][rows][chains];

  [[gnu::always_inline]] void clear() {
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < chains; ++c) sum[0][r][c] = sum[1][r][c] = zero_ints();
    }
  }
  /// Adds 16 k of two units; x [rows] is at the first.
  [[gnu::always_inline]] void add(const std::byte* left, const std::byte* right, const Lookup& book,
                                  const int16_t* x, size_t x_stride) {
    CodeUnit<kind> a{left, book};
    CodeUnit<kind> b{right, book};
    unroll<8>([&](auto i) __attribute__((always_inline)) {
      const Ints pair_a = a.template pair<i.value>();
      const Ints pair_b = b.template pair<i.value>();
#pragma GCC unroll 16
      for (size_t r = 0; r < rows; ++r) {
        const Ints pair = broadcast_pair(x + r * x_stride + 2 * i.value);
        Ints& sum_a = sum[0][r][i.value % chains];
        Ints& sum_b = sum[1][r][i.value % chains];
        sum_a = dot_pairs(sum_a, pair_a, pair);
        sum_b = dot_pairs(sum_b, pair_b, pair);
      }
    });
  }
  [[gnu::always_inline]] Vec total(size_t column, size_t r) const {
    return to_float(chains == 1 ? sum[column][r][0]
                                : sum[column][r][0] + sum[column][r][chains - 1]);
  }
};

/// Keys of two tiles. Where there is one, it stands twice.
struct CodeScores {
  const std::byte* tiles[2];
  size_t units;
  const int8_t* book;
  const int16_t* q;
  size_t q_stride;
  const float* q_scale;
  float* scores[2];  ///< of each tile: [rows, k_chunk_positions]
  const std::byte* ahead[2];
  size_t ahead_step;  ///< for each unit; 0: nothing to fetch
};

template <KvKind kind, size_t rows>
[[gnu::noinline]] static void score_codes(const CodeScores& t) {
  constexpr size_t unit_bytes = kv_kind_info(kind).unit_bytes();
  const Lookup book(t.book);
  const std::byte* scales[2] = {t.tiles[0] + t.units * unit_bytes,
                                t.tiles[1] + t.units * unit_bytes};
  Vec acc[2][rows];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) acc[0][r] = acc[1][r] = zero();
  for (size_t u = 0; u < t.units; u += 2) {
    CodeSums<kind, rows> sums;
    sums.clear();
    for (size_t i = u; i < min_of(u + 2, t.units); ++i) {
      fetch(t.ahead[0] + i * t.ahead_step, t.ahead_step);
      fetch(t.ahead[1] + i * t.ahead_step, t.ahead_step);
      sums.add(t.tiles[0] + i * unit_bytes, t.tiles[1] + i * unit_bytes, book, t.q + 16 * i,
               t.q_stride);
    }
#pragma GCC unroll 2
    for (size_t p = 0; p < 2; ++p) {
      const Vec scale = load_half(scales[p] + u / 2 * 32);
#pragma GCC unroll 16
      for (size_t r = 0; r < rows; ++r) acc[p][r] = fma(sums.total(p, r), scale, acc[p][r]);
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
    const Vec scale = broadcast(t.q_scale[r]);
    store(t.scores[1] + r * k_chunk_positions, acc[1][r] * scale);
    store(t.scores[0] + r * k_chunk_positions, acc[0][r] * scale);
  }
}

/// Values of two units of all tiles of a chunk. Where there is one unit, it stands twice.
struct CodeValues {
  const std::byte* const* tiles;
  size_t count;
  size_t units[2];
  const int8_t* book;
  const int16_t* w;  ///< [rows, k_chunk_positions]
  const float* w_scale;
  float* values;  ///< [rows, stride]
  size_t stride;
  const std::byte* const* ahead;  ///< for each tile
  size_t ahead_at;
  size_t ahead_step;  ///< 0: nothing to fetch
};

template <KvKind kind, size_t rows>
[[gnu::noinline]] static void sum_codes(const CodeValues& t) {
  constexpr size_t unit_bytes = kv_kind_info(kind).unit_bytes();
  const Lookup book(t.book);
  CodeSums<kind, rows> sums;
  sums.clear();
  for (size_t i = 0; i < t.count; ++i) {
    fetch(t.ahead[i] + t.ahead_at, t.ahead_step);
    sums.add(t.tiles[i] + t.units[0] * unit_bytes, t.tiles[i] + t.units[1] * unit_bytes, book,
             t.w + 16 * i, k_chunk_positions);
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
    const Vec scale = broadcast(t.w_scale[r]);
    store(t.values + r * t.stride + 16 * t.units[1], sums.total(1, r) * scale);
    store(t.values + r * t.stride + 16 * t.units[0], sums.total(0, r) * scale);
  }
}

/// Rows of the tallest tile of two columns.
constexpr size_t k_column_rows = min_of(k_code_rows, k_rows_2);

/// Both for 1 … k_column_rows rows, by number of rows less one.
template <KvKind kind>
struct CodeTiles {
  void (*score[k_column_rows])(const CodeScores&);
  void (*sum[k_column_rows])(const CodeValues&);
  constexpr CodeTiles() : score(), sum() { fill<k_column_rows>(); }

 private:
  template <size_t rows>
  constexpr void fill() {
    if constexpr (rows > 0) {
      score[rows - 1] = score_codes<kind, rows>;
      sum[rows - 1] = sum_codes<kind, rows>;
      fill<rows - 1>();
    }
  }
};
template <KvKind kind>
static constexpr CodeTiles<kind> k_code_tiles;

}  // namespace outrider::kernels::OUTRIDER_ISA
