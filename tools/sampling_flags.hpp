#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "base/request.hpp"

namespace outrider::tools {

/// The sampling flags of `generate` and `chat`, with the wire's names in kebab-case.
struct SamplingFlags {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t max_tokens = 64;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void add(CLI::App& command);
  /// Copies the flags into a request.
  void apply(GenerationRequest& request) const;
};

}  // namespace outrider::tools
