#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/limits.hpp"

namespace outrider {

/// Who drafted a hint: each is believed as it deserves.
enum class HintSource : uint8_t { own_text, past_outputs, draft_model, other };
inline constexpr size_t k_hint_sources = 4;
std::string_view to_string(HintSource source);

/// How a hint fared when it came.
enum class HintOutcome : uint8_t {
  used,       ///< It says something about what is not committed yet.
  late,       ///< All that it says is committed already, as it says.
  mismatch,   ///< The text went another way.
  absent,     ///< It continues what nobody has hinted at, or what was committed long ago.
  full,       ///< There was no room for any of it.
  malformed,  ///< A parent that does not come before its child, a token that is negative or cannot
              ///< have come from what it is said to be drawn from: not taken.
  no_lease,   ///< Nobody asked its drafter, or not any more: not taken.
};
inline constexpr size_t k_hint_outcomes = 7;

/// "used", "late", …: metric labels.
std::string_view to_string(HintOutcome outcome);

/// Hints of all requests: how they came, and what became of those that were verified.
struct HintCounters {
  std::array<uint64_t, k_hint_outcomes> hints{};  ///< by HintOutcome
  uint64_t drafts = 0;                            ///< Rows that sampled with hints behind them.
  uint64_t draft_tokens = 0;                      ///< Hints verified.
  uint64_t accepted_tokens = 0;                   ///< Of these, those that were the token drawn.
  std::array<uint64_t, limits::draft_depth_max> accepted_at{};  ///< By place in the draft.
  struct OfSource {
    uint64_t draft_tokens = 0;
    uint64_t accepted_tokens = 0;
  };
  std::array<OfSource, k_hint_sources> by_source{};  ///< Of whoever drafted them.

  /// Place by place.
  HintCounters& operator+=(const HintCounters& other);
  HintCounters& operator-=(const HintCounters& other);
};

}  // namespace outrider
