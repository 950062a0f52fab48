#pragma once

#include "kernels/cpu/panel_layout.hpp"
#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

template <size_t i>
struct Index {
  static constexpr size_t value = i;
};

/// f(Index<0>{}) … f(Index<n - 1>{}).
template <size_t n, class F, size_t i = 0>
OUTRIDER_INLINE void unroll(F f) {
  if constexpr (i < n) {
    f(Index<i>{});
    unroll<n, F, i + 1>(f);
  }
}

/// The codes of one group of a panel (see panel_layout.hpp), taken out as pairs of 16-bit integers:
/// pair i is k = 2i and 2i + 1. Pairs are asked for in ascending order.
template <PanelKind kind>
struct GroupCodes {
  static constexpr PanelLayout layout = panel_layout(kind);
  static constexpr bool is_signed = !layout.has_offset;
  static constexpr size_t pairs = layout.group / 2;
  static constexpr size_t pairs_per_word = layout.code_bits == 8 ? 2 : 4;

  const std::byte* codes;
  Ints low;
  Ints high;

  GroupCodes() = default;
  [[gnu::always_inline]] explicit GroupCodes(const std::byte* at) : codes(at) {
    if constexpr (layout.high_bits() != 0) high = load_ints(codes + 8 * layout.group);
  }

  template <size_t i>
  [[gnu::always_inline]] Ints pair() {
    constexpr int in_word = i % pairs_per_word;
    if constexpr (in_word == 0) low = load_ints(codes + i / pairs_per_word * 64);
    if constexpr (layout.code_bits == 8) {
      if constexpr (in_word == 1) return shift_right_16<8, true>(low);
      return shift_right_16<8, true>(shift_left_16<8>(low));
    } else if constexpr (layout.code_bits == 4) {
      if constexpr (in_word == 3) return shift_right_16<12, is_signed>(low);
      if constexpr (is_signed) {
        return shift_right_16<12, true>(shift_left_16<12 - 4 * in_word>(low));
      } else {
        return and_16<15>(shift_right_16<4 * in_word, false>(low));
      }
    } else {
      // The upper bits go to the top of the half and come down to stand above the low four.
      constexpr int bits = static_cast<int>(layout.high_bits());
      const Ints top = shift_left_16<16 - bits*(static_cast<int>(i) + 1)>(high);
      return select_16<15>(shift_right_16<4 * in_word, false>(low),
                           shift_right_16<12 - bits, is_signed>(top));
    }
  }
};

}  // namespace outrider::kernels::OUTRIDER_ISA
