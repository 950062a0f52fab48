#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace outrider {

/// A closed range; `open_low` excludes the low end.
struct NumberRange {
  using Value = float;
  double low = 0;
  double high = 0;
  bool open_low = false;

  /// False for NaN.
  constexpr bool holds(double value) const {
    return (open_low ? value > low : value >= low) && value <= high;
  }
};

/// INT64_MAX as the high end means none.
struct IntegerRange {
  using Value = int64_t;
  int64_t low = 0;
  int64_t high = 0;

  constexpr bool holds(int64_t value) const { return value >= low && value <= high; }
};

/// All numbers of 64 bits.
struct SeedRange {
  using Value = uint64_t;

  constexpr bool holds(uint64_t) const { return true; }
};

/// What is inside, for errors: "a number above 0, at most 1", "a whole number from 0 to 5".
std::string describe(NumberRange range);
std::string describe(IntegerRange range);
std::string describe(SeedRange range);

/// What clients may ask for, the same over the wire, as flags and in chat.
namespace ranges {

inline constexpr NumberRange temperature{0, 2};
inline constexpr NumberRange top_p{0, 1, true};
inline constexpr NumberRange min_p{0, 1};
inline constexpr NumberRange repetition_penalty{0.01F, 10};  ///< Less makes logits overflow.
inline constexpr NumberRange presence_penalty{-2, 2};
inline constexpr NumberRange frequency_penalty{-2, 2};
inline constexpr IntegerRange top_k{-1, INT32_MAX};  ///< -1 and 0: all
inline constexpr IntegerRange max_tokens{0, INT32_MAX};
inline constexpr SeedRange seed;

}  // namespace ranges

/// A prompt and its output share one context: the same rule and words over the wire and as flags.
struct ContextShare {
  uint64_t prompt_tokens = 0;
  uint64_t context_tokens = 0;

  /// Tokens that are left for output, at least one; else an error that names `prompt_field`.
  Result<uint64_t> room(const std::string& prompt_field) const;
  /// An error that says all numbers if `max_tokens` are more than the room.
  Result<void> holds(uint64_t max_tokens) const;
};

}  // namespace outrider
