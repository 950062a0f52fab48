#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.hpp"
#include "base/request.hpp"
#include "model/tokenizer.hpp"

namespace outrider::exactness {

/// Bounds of the random requests.
struct CaseLimits {
  uint32_t vocab = 0;
  uint32_t prompt_tokens = 80;        ///< Most prompts are at most this long …
  uint32_t long_prompt_tokens = 260;  ///< … one in ten is at most this long.
  uint32_t output_tokens = 24;

  /// Longest sequence.
  uint32_t context_tokens() const { return long_prompt_tokens + output_tokens; }
};

/// A request that uses each feature now and then: greedy or sampled, filters, penalties, bias,
/// stop ids and strings, min_tokens, logprobs of output and prompt, several choices, priorities.
GenerationRequest random_request(Random& random, const CaseLimits& limits,
                                 const model::Tokenizer& tokenizer);

}  // namespace outrider::exactness
