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
  uint32_t prompt_tokens = 80;        ///< Most prompts have at most so many tokens of their own …
  uint32_t long_prompt_tokens = 260;  ///< … one in ten, and none at all with shared ones, more.
  /// A far prompt has as many, or up to k_far_slack fewer: over two chunks of attention.
  uint32_t far_prompt_tokens = 640;
  uint32_t far_every = 24;  ///< The first of so many requests has a far prompt.
  uint32_t output_tokens = 24;
  uint32_t families = 2;     ///< Of prompts that begin alike.
  uint64_t family_seed = 0;  ///< What they begin with.

  /// Longest usual sequence.
  uint32_t context_tokens() const { return long_prompt_tokens + output_tokens; }
};

/// Attention walks chunks of so many positions (kernels/README.md).
inline constexpr uint32_t k_chunk_tokens = 256;
inline constexpr uint32_t k_far_slack = 40;

enum class PromptLength { usual, far };

/// A request that uses each feature now and then: greedy or sampled, filters, penalties, bias,
/// stop ids and strings, min_tokens, logprobs of output and prompt, several choices, priorities,
/// prompts that begin as others do, tenants, salts, pins and times to live.
GenerationRequest random_request(Random& random, const CaseLimits& limits, PromptLength length,
                                 const model::Tokenizer& tokenizer);

}  // namespace outrider::exactness
