#pragma once

#include "kernels/cpu/codes.inl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/output.inl.hpp"
#include "kernels/cpu/vector_math.inl.hpp"

/// Products with quantised weights and quantised rows: exact integer dots per group, combined in
/// float by the order written at MatmulArgs.
namespace outrider::kernels::OUTRIDER_ISA {

/// Some rows times one panel, or two of the same kind and k, over a range of k. The last row is
/// computed again in place of those that are missing.
struct CodeTile {
  Range rows;
  Range k;
  const std::byte* panel[2];
  size_t jump;   ///< from the end of panel[0] to where reading goes on
  size_t index;  ///< of panel[0] in y
  size_t count;  ///< of panels that go to y; 0: all stay in acc
  /// [panel][rows][16] sums, panels `acc_stride` apart: read unless k begins at 0, written unless
  /// they go to y.
  float* acc;
  size_t acc_stride;
};

/// Of two panels, each pair of activations is loaded once for both, or loads would limit. Few rows
/// would wait for each product: their sums are split, and are the same integers.
template <PanelKind kind, size_t rows, size_t panels>
[[gnu::noinline]] static void code_tile(const MatmulArgs& a, const CodeTile& t) {
  using Codes = GroupCodes<kind>;
  constexpr PanelLayout layout = Codes::layout;
  constexpr size_t chains = 4 / panels / rows < 1 ? 1 : 4 / panels / rows;
  const size_t last_row = t.rows.end - t.rows.begin - 1;
  const int16_t* x[rows];
  const float* sums[rows];
  const std::byte* at[panels];
  Vec acc[panels][rows];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
    const size_t row = t.rows.begin + min_of(r, last_row);
    x[r] = a.rows.codes + row * a.k;
    sums[r] = a.rows.sums + row * (a.k / k_sum_group);
  }
#pragma GCC unroll 2
  for (size_t p = 0; p < panels; ++p) {
    at[p] = t.panel[p] + t.k.begin / layout.super * layout.super_bytes();
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; ++r) {
      const float* old = t.acc + p * t.acc_stride + 16 * min_of(r, last_row);
      acc[p][r] = t.k.begin == 0 ? zero() : load(old);
    }
  }
  const std::byte* end = t.panel[0] + a.panel_bytes;
  for (size_t k = t.k.begin; k < t.k.end;) {
    Vec d[panels];
    Vec m[panels];
#pragma GCC unroll 2
    for (size_t p = 0; p < panels; ++p) {
      d[p] = load_half(at[p]);
      if constexpr (layout.has_offset) m[p] = load_half(at[p] + 32);
      at[p] += layout.super_header_bytes();
    }
    for (size_t g = 0; g < layout.super / layout.group; ++g) {
      const size_t ahead = k_prefetch_bytes + (at[0] + k_prefetch_bytes < end ? 0 : t.jump);
#pragma GCC unroll 2
      for (size_t p = 0; p < panels; ++p) {
        for (size_t i = 0; i < layout.group_bytes(); i += 64) {
          __builtin_prefetch(at[p] + ahead + i);
        }
      }
      Codes codes[panels];
      Ints dot[panels][rows][chains];
#pragma GCC unroll 2
      for (size_t p = 0; p < panels; ++p) {
        codes[p] = Codes(at[p] + layout.group_header_bytes());
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; ++r) {
          for (Ints& chain : dot[p][r]) chain = zero_ints();
        }
      }
      unroll<Codes::pairs>([&](auto i) __attribute__((always_inline)) {
        Ints w[panels];
#pragma GCC unroll 2
        for (size_t p = 0; p < panels; ++p) w[p] = codes[p].template pair<i.value>();
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; ++r) {
          const Ints pair = broadcast_pair(x[r] + k + 2 * i.value);
#pragma GCC unroll 2
          for (size_t p = 0; p < panels; ++p) {
            Ints& chain = dot[p][r][i.value % chains];
            chain = dot_pairs(chain, w[p], pair);
          }
        }
      });
#pragma GCC unroll 2
      for (size_t p = 0; p < panels; ++p) {
        Vec scale = d[p];
        Vec offset = m[p];
        if constexpr (layout.scaled_groups) {
          scale = scale * (layout.has_offset ? load_uint8(at[p]) : load_int8(at[p]));
          if constexpr (layout.has_offset) offset = offset * load_uint8(at[p] + 16);
        }
#pragma GCC unroll 16
        for (size_t r = 0; r < rows; ++r) {
          Ints whole = dot[p][r][0];
          for (size_t c = 1; c < chains; ++c) whole = whole + dot[p][r][c];
          acc[p][r] = fma(to_float(whole), scale, acc[p][r]);
          if constexpr (layout.has_offset) {
            acc[p][r] = fma(offset, broadcast(sums[r][k / k_sum_group]), acc[p][r]);
          }
        }
        at[p] += layout.group_bytes();
      }
      k += layout.group;
    }
  }
  // Loops over registers have a fixed length, or the compiler would keep them in memory.
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (size_t p = 0; p < panels; ++p) {
      if (r > last_row) continue;
      const size_t row = t.rows.begin + r;
      if (t.k.end < a.k || t.count == 0) {
        store(t.acc + p * t.acc_stride + 16 * r, acc[p][r]);
      } else if (p < t.count) {
        finish(a, row, t.index + p, acc[p][r] * broadcast(a.rows.scale[row]));
      }
    }
  }
}

/// Both panels of a tile, in one or each by itself, as this instruction set has registers.
template <PanelKind kind, size_t rows>
static void code_tiles(const MatmulArgs& a, const CodeTile& both) {
  if constexpr (k_code_panels == 2) {
    code_tile<kind, rows, 2>(a, both);
  } else {
    CodeTile one = both;
    one.jump = 0;
    one.count = min_of(both.count, 1);
    code_tile<kind, rows, 1>(a, one);
    if (both.count == 1) return;
    one.panel[0] = both.panel[1];
    one.jump = both.jump;
    one.index += 1;
    one.acc += both.acc_stride;
    code_tile<kind, rows, 1>(a, one);
  }
}

/// Any number of rows: in the tallest tiles, the rest in the smallest one that holds it.
template <PanelKind kind>
static void wide_tiles(const MatmulArgs& a, const CodeTile& whole) {
  for (size_t row = whole.rows.begin; row < whole.rows.end; row += k_code_rows) {
    CodeTile tile = whole;
    tile.rows = {row, min_of(whole.rows.end, row + k_code_rows)};
    tile.acc += 16 * (row - whole.rows.begin);
    const size_t height = tile.rows.end - row;
    if (height == 1) {
      code_tiles<kind, 1>(a, tile);
    } else if (height == 2) {
      code_tiles<kind, 2>(a, tile);
    } else if (height <= min_of(4, k_code_rows)) {
      code_tiles<kind, min_of(4, k_code_rows)>(a, tile);
    } else {
      code_tiles<kind, k_code_rows>(a, tile);
    }
  }
}

/// y of one panel from the sums of gate and up.
static void finish_gated(const MatmulArgs& a, Range rows, size_t panel, const float* gate,
                         const float* up) {
  const size_t width = min_of(16, a.n - 16 * panel);
  for (size_t row = rows.begin; row < rows.end; ++row, gate += 16, up += 16) {
    const Vec scale = broadcast(a.rows.scale[row]);
    store_first(a.y + row * a.n + 16 * panel, swiglu(load(gate) * scale, load(up) * scale), width);
  }
}

/// Tiles take two panels: neighbours, or those of gate and up; `tiles` computes one such pair with
/// all rows. Where rows are many and long, all go over one range of k before the next, so that they
/// stay in cache.
template <class Tiles>
static void panel_pairs(const MatmulArgs& a, Range rows, Range panels, Tiles tiles) {
  alignas(64) float acc[k_code_acc_floats];
  const size_t m = rows.end - rows.begin;
  const bool gated = a.up_panels != nullptr;
  const auto tile_of = [&](size_t panel, Range k, float* sums) {
    const std::byte* at = a.panels + panel * a.panel_bytes;
    CodeTile tile = {rows, k, {at, at}, 0, panel, 1, sums, m * 16};
    if (gated) {
      tile.panel[1] = a.up_panels + panel * a.panel_bytes;
      tile.count = 0;
    } else if (panel + 1 < panels.end) {
      tile.panel[1] = at + a.panel_bytes;
      tile.jump = a.panel_bytes;
      tile.count = 2;
    }
    return tile;
  };
  const size_t tile_panels = gated ? 1 : 2;
  const size_t k_step = m <= k_code_rows ? a.k : k_code_k;
  const bool keeps_sums = gated || k_step < a.k;
  const size_t tiles_at_once = keeps_sums ? k_code_acc_floats / (32 * m) : panels.end;
  for (size_t first = panels.begin; first < panels.end; first += tiles_at_once * tile_panels) {
    const size_t end = min_of(panels.end, first + tiles_at_once * tile_panels);
    const auto sums_of = [&](size_t p) {
      return !keeps_sums ? acc : acc + (p - first) / tile_panels * m * 32;
    };
    for (size_t k = 0; k < a.k; k += k_step) {
      for (size_t p = first; p < end; p += tile_panels) {
        tiles(a, tile_of(p, {k, min_of(a.k, k + k_step)}, sums_of(p)));
      }
    }
    for (size_t p = first; gated && p < end; ++p) {
      finish_gated(a, rows, p, sums_of(p), sums_of(p) + m * 16);
    }
  }
}

/// One row goes along one stream of weights.
template <PanelKind kind>
static void code_matmul(const MatmulArgs& a, Range rows, Range panels) {
  if (rows.end - rows.begin > 1 || a.up_panels != nullptr) {
    return panel_pairs(a, rows, panels, wide_tiles<kind>);
  }
  for (size_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* at = a.panels + p * a.panel_bytes;
    code_tile<kind, 1, 1>(a, {rows, {0, a.k}, {at, at}, 0, p, 1, nullptr, 0});
  }
}

template <PanelKind value>
struct Kind {
  static constexpr PanelKind kind = value;
};

/// f(Kind<kind>{}) for a kind of coded weights.
template <class F>
static void with_coded_kind(PanelKind kind, F f) {
  switch (kind) {
    case PanelKind::f32:
    case PanelKind::f16:
    case PanelKind::bf16:
      return;
    case PanelKind::q4_0:
      return f(Kind<PanelKind::q4_0>{});
    case PanelKind::q4_1:
      return f(Kind<PanelKind::q4_1>{});
    case PanelKind::q5_0:
      return f(Kind<PanelKind::q5_0>{});
    case PanelKind::q5_1:
      return f(Kind<PanelKind::q5_1>{});
    case PanelKind::q8_0:
      return f(Kind<PanelKind::q8_0>{});
    case PanelKind::q4_k:
      return f(Kind<PanelKind::q4_k>{});
    case PanelKind::q5_k:
      return f(Kind<PanelKind::q5_k>{});
    case PanelKind::q6_k:
      return f(Kind<PanelKind::q6_k>{});
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
