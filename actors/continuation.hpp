#pragma once

#include <cstdint>
#include <vector>

#include "base/request.hpp"

/// How a request goes on after its target is lost. Pure functions of what the client already has.
namespace outrider::actors {

/// What the client has of one choice.
struct ChoiceProgress {
  std::vector<int32_t> ids;
  bool finished = false;
  uint32_t source = 0;  ///< Generation of the attempt that sent the last of it.
};

struct SessionProgress {
  std::vector<ChoiceProgress> choices;
  uint32_t prompt_tokens = 0;  ///< Entries of prompt_logprobs delivered.

  bool finished() const;
};

/// The client's choices that one attempt computes; the attempt numbers them from 0.
using AttemptChoices = std::vector<uint32_t>;

/// How many tokens of a choice a new attempt takes over: all but the last. That one is computed
/// again, because its finish may have been lost with the old target, and because it proves the new
/// one to be a true twin. Where drafts have a say in what is drawn it would be another one: then
/// all; engines see by themselves that an output has ended.
inline uint32_t committed_tokens(const GenerationRequest& whole, const ChoiceProgress& choice) {
  const auto have = static_cast<uint32_t>(choice.ids.size());
  return verifies_by_rejection(whole) || have == 0 ? have : have - 1;
}

/// Splits what is unfinished of `lost` into new attempts. Together while no token was delivered
/// (they share the prompt's blocks), else one attempt for each choice.
std::vector<AttemptChoices> plan_attempts(const SessionProgress& progress,
                                          const AttemptChoices& lost);

/// The request that computes `choices`. A continued choice is a request with n = 1, its own seed
/// and committed_tokens() of its own.
GenerationRequest attempt_request(const GenerationRequest& whole, const SessionProgress& progress,
                                  const AttemptChoices& choices);

}  // namespace outrider::actors
