#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/output.inl.hpp"
#include "kernels/cpu/tile.inl.hpp"

/// Products with weights that are floats in the file: one FMA per weight and row, k ascending.
namespace outrider::kernels::OUTRIDER_ISA {

template <PanelKind kind>
constexpr size_t k_step_bytes = size_t{2} * panel_layout(kind).code_bits;  ///< of one k

template <PanelKind kind>
OUTRIDER_INLINE Vec load_weights(const std::byte* at) {
  if constexpr (kind == PanelKind::f16) return load_half(at);
  if constexpr (kind == PanelKind::bf16) return load_bfloat16(at);
  return load(reinterpret_cast<const float*>(at));
}

/// Few rows: weights are converted in registers and used at once. Up to `rows` rows; the last one
/// is computed again in place of those that are missing.
template <PanelKind kind, size_t rows>
[[gnu::noinline]] static void few_float_rows(const MatmulArgs& a, Range range, size_t panel) {
  const std::byte* at = a.panels + panel * a.panel_bytes;
  const size_t m = range.end - range.begin;
  const float* x[rows];
  for (size_t r = 0; r < rows; ++r) x[r] = a.x + (range.begin + min_of(r, m - 1)) * a.k;
  Vec acc[rows];
  for (Vec& v : acc) v = zero();
  for (size_t k = 0; k < a.k; ++k, at += k_step_bytes<kind>) {
    __builtin_prefetch(at + k_prefetch_bytes);
    const Vec w = load_weights<kind>(at);
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; ++r) acc[r] = fma(w, broadcast(x[r][k]), acc[r]);
  }
  // The loop over registers has a fixed length, or the compiler would keep them in memory.
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
    if (r >= m) break;
    finish(a, range.begin + r, panel, acc[r]);
  }
}

/// Many rows: a strip of two panels is converted once and used by all rows.
template <PanelKind kind>
static void many_float_rows(const MatmulArgs& a, Range rows, size_t first_panel, size_t panels) {
  alignas(64) float strip[2 * k_strip_k * 16];
  alignas(64) float acc[k_float_rows_max * 32];
  const size_t m = rows.end - rows.begin;
  for (size_t k = 0; k < a.k; k += k_strip_k) {
    const size_t k_end = min_of(a.k, k + k_strip_k);
    for (size_t p = 0; p < panels; ++p) {
      const std::byte* panel = a.panels + (first_panel + p) * a.panel_bytes;
      for (size_t i = k; i < k_end; ++i) {
        store(strip + (p * k_strip_k + i - k) * 16,
              load_weights<kind>(panel + i * k_step_bytes<kind>));
      }
    }
    run_tiles<Strip>({.weights = {strip, k_strip_k * 16},
                      .x = a.x + rows.begin * a.k + k,
                      .x_stride = a.k,
                      .k = k_end - k,
                      .acc = acc,
                      .acc_stride = 32,
                      .from_zero = k == 0},
                     m, panels);
  }
  for (size_t r = 0; r < m; ++r) {
    for (size_t p = 0; p < panels; ++p) {
      finish(a, rows.begin + r, first_panel + p, load(acc + 32 * r + 16 * p));
    }
  }
}

template <PanelKind kind>
static void float_matmul(const MatmulArgs& a, Range rows, Range panels) {
  const size_t m = rows.end - rows.begin;
  for (size_t p = panels.begin; p < panels.end && m <= k_code_rows; ++p) {
    if (m <= 1) {
      few_float_rows<kind, 1>(a, rows, p);
    } else {
      few_float_rows<kind, k_code_rows>(a, rows, p);
    }
  }
  if (m <= k_code_rows) return;
  for (size_t row = rows.begin; row < rows.end; row += k_float_rows_max) {
    const Range part = {row, min_of(rows.end, row + k_float_rows_max)};
    for (size_t p = panels.begin; p < panels.end; p += 2) {
      many_float_rows<kind>(a, part, p, min_of(2, panels.end - p));
    }
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
