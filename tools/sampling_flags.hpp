#pragma once

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "base/request.hpp"

namespace outrider::tools {

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
