#pragma once

#include "kernels/cpu/codes.inl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/output.inl.hpp"

/// Products with quantised weights and quantised rows: exact integer dots per group, combined in
/// float by the order written at MatmulArgs.
namespace outrider::kernels::OUTRIDER_ISA {

/// Up to `rows` rows times one panel over a range of k. The last row is computed again in place of
/// those that are missing.
struct CodeTile {
  Range rows;
  size_t panel;
  Range k;
  float*
      acc;  ///< [rows][16] between ranges of k: read unless k begins at 0, written unless it ends
};

template <PanelKind kind, size_t rows>
[[gnu::noinline]] static void code_tile(const MatmulArgs& a, const CodeTile& t) {
  using Codes = GroupCodes<kind>;
  constexpr PanelLayout layout = Codes::layout;
  // Few rows would wait for each product: partial sums are the same integers.
  constexpr size_t chains = rows <= 2 ? 4 : 1;
  const size_t last = t.rows.end - t.rows.begin - 1;
  const int16_t* x[rows];
  const float* sums[rows];
  Vec acc[rows];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
    const size_t row = t.rows.begin + min_of(r, last);
    x[r] = a.rows.codes + row * a.k;
    sums[r] = a.rows.sums + row * (a.k / k_sum_group);
    acc[r] = t.k.begin == 0 ? zero() : load(t.acc + 16 * min_of(r, last));
  }
  const std::byte* at =
      a.panels + t.panel * a.panel_bytes + t.k.begin / layout.super * layout.super_bytes();
  for (size_t k = t.k.begin; k < t.k.end;) {
    const Vec d = load_half(at);
    Vec m = zero();
    if constexpr (layout.has_offset) m = load_half(at + 32);
    at += layout.super_header_bytes();
    for (size_t g = 0; g < layout.super / layout.group; ++g) {
      Vec scale = d;
      Vec offset = m;
      if constexpr (layout.scaled_groups) {
        scale = scale * (layout.has_offset ? load_uint8(at) : load_int8(at));
        if constexpr (layout.has_offset) offset = offset * load_uint8(at + 16);
      }
      for (size_t i = 0; i < layout.group_bytes(); i += 64) {
        __builtin_prefetch(at + k_prefetch_bytes + i);
      }
      Codes codes(at + layout.group_header_bytes());
      Ints dot[rows][chains];
#pragma GCC unroll 16
      for (size_t r = 0; r < rows; ++r) {
        for (Ints& chain : dot[r]) chain = zero_ints();
      }
      unroll<Codes::pairs>([&](auto i) __attribute__((always_inline)) {
        const Ints w = codes.template pair<i.value>();
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; ++r) {
          Ints& chain = dot[r][i.value % chains];
          chain = dot_pairs(chain, w, x[r] + k + 2 * i.value);
        }
      });
#pragma GCC unroll 16
      for (size_t r = 0; r < rows; ++r) {
        Ints whole = dot[r][0];
        for (size_t c = 1; c < chains; ++c) whole = whole + dot[r][c];
        acc[r] = fma(to_float(whole), scale, acc[r]);
        if constexpr (layout.has_offset) {
          acc[r] = fma(offset, broadcast(sums[r][k / k_sum_group]), acc[r]);
        }
      }
      at += layout.group_bytes();
      k += layout.group;
    }
  }
  // The loop over registers has a fixed length, or the compiler would keep them in memory.
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
    if (r > last) break;
    const size_t row = t.rows.begin + r;
    if (t.k.end < a.k) {
      store(t.acc + 16 * r, acc[r]);
    } else {
      finish(a, row, t.panel, acc[r] * broadcast(a.rows.scale[row]));
    }
  }
}

template <PanelKind kind, size_t rows>
OUTRIDER_INLINE void code_tile_if(const MatmulArgs& a, const CodeTile& t) {
  if constexpr (rows <= k_code_rows) code_tile<kind, rows>(a, t);
}

/// The smallest tile that holds the rows.
template <PanelKind kind>
static void code_tile_of(const MatmulArgs& a, const CodeTile& t) {
  const size_t m = t.rows.end - t.rows.begin;
  if (m <= 1) return code_tile_if<kind, 1>(a, t);
  if (m <= 2) return code_tile_if<kind, 2>(a, t);
  if (m <= 4) return code_tile_if<kind, 4>(a, t);
  if (m <= 8) return code_tile_if<kind, 8>(a, t);
  code_tile_if<kind, 12>(a, t);
}

/// Rows in tiles of k_code_rows. Where they are many and long, all go over one range of k before
/// the next, so that they stay in cache.
template <PanelKind kind>
static void code_matmul(const MatmulArgs& a, Range rows, Range panels) {
  alignas(64) float acc[k_code_acc_floats];
  const size_t m = rows.end - rows.begin;
  const size_t k_step = m <= k_code_rows ? a.k : k_code_k;
  const size_t panel_step = k_step >= a.k ? panels.end : k_code_acc_floats / (16 * m);
  for (size_t first = panels.begin; first < panels.end; first += panel_step) {
    const size_t end = min_of(panels.end, first + panel_step);
    for (size_t k = 0; k < a.k; k += k_step) {
      for (size_t p = first; p < end; ++p) {
        for (size_t row = 0; row < m; row += k_code_rows) {
          const size_t row_end = min_of(m, row + k_code_rows);
          code_tile_of<kind>(a, {.rows = {rows.begin + row, rows.begin + row_end},
                                 .panel = p,
                                 .k = {k, min_of(a.k, k + k_step)},
                                 .acc = acc + ((p - first) * m + row) * 16});
        }
      }
    }
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
