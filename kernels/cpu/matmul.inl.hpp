#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/panel.inl.hpp"
#include "kernels/cpu/tile.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// y of one row and one panel: bias, then the old value (see MatmulArgs).
OUTRIDER_INLINE void finish(const MatmulArgs& a, size_t row, size_t panel, Vec acc) {
  const size_t width = min_of(16, a.n - 16 * panel);
  float* y = a.y + row * a.n + 16 * panel;
  if (a.bias != nullptr) acc = acc + load_first(a.bias + 16 * panel, width);
  if (a.accumulate) acc = acc + load_first(y, width);
  store_first(y, acc, width);
}

/// How far ahead of its use a weight is asked for: with few rows, reading is what takes the time.
constexpr size_t k_prefetch_bytes = 4096;

/// Asks for `bytes` of a panel k_prefetch_bytes behind `at`; past its end, of the panel that this
/// thread decodes next, `panels` further on.
OUTRIDER_INLINE void prefetch_ahead(const MatmulArgs& a, const std::byte* panel, size_t at,
                                    size_t bytes, size_t panels) {
  const size_t ahead = at + k_prefetch_bytes;
  const size_t skip = ahead < a.panel_bytes ? 0 : (panels - 1) * a.panel_bytes;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(panel + ahead + skip + i);
}

/// Few rows: weights are decoded in registers and used at once. Up to `rows` rows; the last one
/// is computed again in place of those that are missing.
template <PanelKind kind, size_t rows, size_t panels>
[[gnu::noinline]] static void few_rows(const MatmulArgs& a, Range range, size_t first_panel) {
  using G = Group<kind>;
  constexpr size_t k_group = G::layout.group;
  const NibbleTable table = table_of<kind>();
  const std::byte* panel = a.panels + first_panel * a.panel_bytes;
  const size_t m = range.end - range.begin;
  const float* x[rows];
  for (size_t r = 0; r < rows; ++r) x[r] = a.x + (range.begin + min_of(r, m - 1)) * a.k;
  Vec acc[rows][panels];
  for (auto& row : acc) {
    for (Vec& v : row) v = zero();
  }
  const auto add = [&](const Vec(&w)[panels], size_t k) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; ++r) {
      const Vec xv = broadcast(x[r][k]);
#pragma GCC unroll 4
      for (size_t p = 0; p < panels; ++p) acc[r][p] = fma(w[p], xv, acc[r][p]);
    }
  };
  size_t k = 0;
  size_t at = 0;
  for (; k + k_group <= a.k; k += k_group) {
    G group[panels];
#pragma GCC unroll 4
    for (size_t p = 0; p < panels; ++p) {
      const std::byte* start = panel + p * a.panel_bytes;
      group[p].begin(start + at);
      prefetch_ahead(a, start, at, G::bytes, panels);
    }
    for (size_t step = 0; step < k_group / 8; ++step) {
#pragma GCC unroll 4
      for (size_t p = 0; p < panels; ++p) group[p].begin_step(step);
      unroll_8([&](auto i) __attribute__((always_inline)) {
        Vec w[panels];
#pragma GCC unroll 4
        for (size_t p = 0; p < panels; ++p) w[p] = group[p].template weight<i.value>(step, table);
        add(w, k + 8 * step + i.value);
      });
    }
    at += G::bytes;
  }
  if constexpr (G::layout.scale_bytes == 0) {
    // Only float weights have rows that are no multiple of a group.
    float tail[panels][8 * 16];
    for (size_t p = 0; k < a.k && p < panels; ++p) {
      decode_strip<kind>(panel + p * a.panel_bytes + at, 0, 8, tail[p]);
    }
    for (size_t i = 0; k + i < a.k; ++i) {
      Vec w[panels];
      for (size_t p = 0; p < panels; ++p) w[p] = load(tail[p] + 16 * i);
      add(w, k + i);
    }
  }
  // The loop over registers has a fixed length, or the compiler would keep them in memory.
#pragma GCC unroll 8
  for (size_t r = 0; r < rows; ++r) {
    if (r >= m) break;
    for (size_t p = 0; p < panels; ++p) finish(a, range.begin + r, first_panel + p, acc[r][p]);
  }
}

/// Many rows: a strip of two panels is decoded once and used by all rows.
template <PanelKind kind>
static void many_rows(const MatmulArgs& a, Range rows, size_t first_panel, size_t panels) {
  alignas(64) float strip[2 * k_strip_k * 16];
  alignas(64) float acc[k_matmul_rows_max * 32];
  const size_t m = rows.end - rows.begin;
  for (size_t k = 0; k < a.k; k += k_strip_k) {
    const size_t k_end = min_of(a.k, k + k_strip_k);
    for (size_t p = 0; p < panels; ++p) {
      const std::byte* panel = a.panels + (first_panel + p) * a.panel_bytes;
      constexpr size_t k_strip_bytes = k_strip_k / Group<kind>::layout.group * Group<kind>::bytes;
      prefetch_ahead(a, panel, k / k_strip_k * k_strip_bytes, k_strip_bytes, panels);
      decode_strip<kind>(panel, k, k_end, strip + p * k_strip_k * 16);
    }
    run_tiles({.strip = strip,
               .panel_stride = k_strip_k * 16,
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

template <PanelKind kind, size_t rows>
static void few_rows_all(const MatmulArgs& a, Range range, Range panels) {
  size_t p = panels.begin;
  for (; p + 2 <= panels.end; p += 2) few_rows<kind, rows, 2>(a, range, p);
  for (; p < panels.end; ++p) few_rows<kind, rows, 1>(a, range, p);
}

template <PanelKind kind>
static void matmul_of(const MatmulArgs& a, Range rows, Range panels) {
  const size_t m = rows.end - rows.begin;
  if constexpr (k_few_rows >= 2) {
    if (m <= 1) return few_rows_all<kind, 1>(a, rows, panels);
    if (m <= 2) return few_rows_all<kind, 2>(a, rows, panels);
  }
  if constexpr (k_few_rows >= 8) {
    if (m <= 4) return few_rows_all<kind, 4>(a, rows, panels);
    if (m <= 8) return few_rows_all<kind, 8>(a, rows, panels);
  }
  for (size_t p = panels.begin; p < panels.end; p += 2) {
    many_rows<kind>(a, rows, p, min_of(2, panels.end - p));
  }
}

static void matmul(const MatmulArgs& a, Range rows, Range panels) {
  switch (a.kind) {
    case PanelKind::f32:
      return matmul_of<PanelKind::f32>(a, rows, panels);
    case PanelKind::f16:
      return matmul_of<PanelKind::f16>(a, rows, panels);
    case PanelKind::bf16:
      return matmul_of<PanelKind::bf16>(a, rows, panels);
    case PanelKind::nibble_centered:
      return matmul_of<PanelKind::nibble_centered>(a, rows, panels);
    case PanelKind::nibble_half:
      return matmul_of<PanelKind::nibble_half>(a, rows, panels);
    case PanelKind::nibble_float:
      return matmul_of<PanelKind::nibble_float>(a, rows, panels);
    case PanelKind::int8_half:
      return matmul_of<PanelKind::int8_half>(a, rows, panels);
    case PanelKind::int8_half_offset:
      return matmul_of<PanelKind::int8_half_offset>(a, rows, panels);
    case PanelKind::int8_float_offset:
      return matmul_of<PanelKind::int8_float_offset>(a, rows, panels);
    case PanelKind::int8_float:
      return matmul_of<PanelKind::int8_float>(a, rows, panels);
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
