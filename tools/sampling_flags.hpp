#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/request.hpp"
#include "base/sampling_ranges.hpp"

namespace outrider::tools {

/// Take the whole of `text` as a value inside the range; false leaves `out` alone.
bool parse_number(const std::string& text, NumberRange range, float& out);
bool parse_integer(const std::string& text, IntegerRange range, int64_t& out);

/// "a number from 0 to 2".
std::string describe(NumberRange range);
std::string describe(IntegerRange range);

/// Checks of flags that say what they expected.
CLI::Validator in_range(NumberRange range);
CLI::Validator in_range(IntegerRange range);

/// The sampling flags of `generate` and `chat`, with the wire's names in kebab-case.
struct SamplingFlags {
  SamplingParams params;
  StopParams stop{.max_tokens = 64};

  void add(CLI::App& command);
  /// Copies the flags into a request.
  void apply(GenerationRequest& request) const;
  /// As fields of an OpenAI request; all but the first few only where they are not the default, so
  /// that servers which do not know them go on.
  nlohmann::ordered_json to_json() const;
};

}  // namespace outrider::tools
