#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/request.hpp"
#include "base/sampling_ranges.hpp"
#include "tools/parse_number.hpp"

namespace outrider::tools {

/// A check of a flag that says what it expected.
template <class Range>
CLI::Validator in_range(Range range) {
  return {[range](std::string& text) -> std::string {
            typename Range::Value value{};
            if (parse_number(text, range, value)) return "";
            return "\"" + text + "\" is not " + describe(range);
          },
          ""};
}

/// Of one answer; the wire's 0 is for prompts alone.
inline constexpr IntegerRange k_answer_tokens{1, ranges::max_tokens.high};

/// The sampling flags of `generate` and `chat`, with the wire's names in kebab-case.
struct SamplingFlags {
  SamplingParams params;
  /// With max_tokens 0, which no flag can say: as many as the context leaves.
  StopParams stop{.max_tokens = 64};

  void add(CLI::App& command);
  /// Copies the flags into a request.
  void apply(GenerationRequest& request) const;
  /// As fields of an OpenAI request; all but the first few only where they are not the default, so
  /// that servers which do not know them go on.
  nlohmann::ordered_json to_json() const;
};

}  // namespace outrider::tools
