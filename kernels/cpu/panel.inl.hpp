#pragma once

#include "kernels/cpu/panel_layout.hpp"
#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

template <size_t i>
struct Index {
  static constexpr size_t value = i;
};

/// f(Index<0>{}) … f(Index<7>{}).
template <class F>
OUTRIDER_INLINE void unroll_8(F f) {
  f(Index<0>{});
  f(Index<1>{});
  f(Index<2>{});
  f(Index<3>{});
  f(Index<4>{});
  f(Index<5>{});
  f(Index<6>{});
  f(Index<7>{});
}

/// Decodes the weights of one group of a panel, 8 consecutive k at a time.
template <PanelKind kind>
struct Group {
  static constexpr PanelLayout layout = k_panel_layouts[static_cast<size_t>(kind)];
  static constexpr size_t bytes = layout.group_bytes();
  static constexpr size_t step_bytes = size_t{16} * layout.code_bits;  ///< of 8 k

  const std::byte* codes;
  Vec scale;
  Vec offset;
  Ints words;

  [[gnu::always_inline]] void begin(const std::byte* group) {
    if constexpr (layout.scale_bytes == 2) scale = load_half(group);
    if constexpr (layout.scale_bytes == 4) scale = load(reinterpret_cast<const float*>(group));
    const std::byte* at = group + 16 * layout.scale_bytes;
    if constexpr (layout.offset_bytes == 2) offset = load_half(at);
    if constexpr (layout.offset_bytes == 4) offset = load(reinterpret_cast<const float*>(at));
    codes = group + layout.codes_at();
  }

  /// Weights of k = 8 * step + i, valid after begin_step(step).
  [[gnu::always_inline]] void begin_step(size_t step) {
    if constexpr (layout.code_bits == 4) words = load_ints(codes + step * step_bytes);
  }
  template <size_t i>
  [[gnu::always_inline]] Vec weight(size_t step, NibbleTable table) const {
    const std::byte* at = codes + step * step_bytes + i * 2 * layout.code_bits;
    if constexpr (kind == PanelKind::f32) return load(reinterpret_cast<const float*>(at));
    if constexpr (kind == PanelKind::f16) return load_half(at);
    if constexpr (kind == PanelKind::bf16) return load_bfloat16(at);
    if constexpr (layout.scale_bytes != 0) {
      Vec code;
      if constexpr (layout.code_bits == 4) {
        code = nibble<static_cast<int>(i)>(words, table);
      } else {
        code = load_int8(at);
      }
      if constexpr (layout.offset_bytes != 0) return fma(code, scale, offset);
      return code * scale;
    }
  }
};

template <PanelKind kind>
OUTRIDER_INLINE NibbleTable table_of() {
  return nibble_table(kind == PanelKind::nibble_centered ? -8.0f : 0.0f);
}

/// Weights of [k_begin, k_begin + k_strip_k) or up to the end of the panel, as floats [k][16].
template <PanelKind kind>
static void decode_strip(const std::byte* panel, size_t k_begin, size_t k_end, float* strip) {
  using G = Group<kind>;
  const NibbleTable table = table_of<kind>();
  for (size_t k = k_begin; k < k_end; k += G::layout.group) {
    G group;
    group.begin(panel + k / G::layout.group * G::bytes);
    for (size_t step = 0; step < G::layout.group / 8; ++step) {
      group.begin_step(step);
      unroll_8([&](auto i) __attribute__((always_inline)) {
        store(strip + 16 * i.value, group.template weight<i.value>(step, table));
      });
      strip += 128;
    }
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
