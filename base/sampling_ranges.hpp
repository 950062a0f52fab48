#pragma once

#include <cstdint>

namespace outrider {

/// A closed range; `open_low` excludes the low end.
struct NumberRange {
  double low = 0;
  double high = 0;
  bool open_low = false;

  /// False for NaN.
  constexpr bool holds(double value) const {
    return (open_low ? value > low : value >= low) && value <= high;
  }
};

struct IntegerRange {
  int64_t low = 0;
  int64_t high = 0;
};

/// What clients may ask for, the same over the wire, as flags and in chat.
namespace ranges {

inline constexpr NumberRange temperature{0, 2};
inline constexpr NumberRange top_p{0, 1, true};
inline constexpr NumberRange min_p{0, 1};
inline constexpr NumberRange repetition_penalty{0, 10, true};
inline constexpr NumberRange presence_penalty{-2, 2};
inline constexpr NumberRange frequency_penalty{-2, 2};
inline constexpr IntegerRange top_k{-1, INT32_MAX};  ///< -1 and 0: all
inline constexpr IntegerRange max_tokens{0, INT32_MAX};
/// Of flags and chat; JSON bodies may also say all 64 bits.
inline constexpr IntegerRange seed{0, INT64_MAX};

}  // namespace ranges
}  // namespace outrider
