#pragma once

#include <string>
#include <utility>
#include <vector>

namespace outrider {

/// All that a model's answers depend on, each by its name: a setting's, or what it is. Equal ones
/// mean equal tokens and logprob bits; a fingerprint is their digest.
using AnswerTraits = std::vector<std::pair<std::string, std::string>>;

/// In what `own` differ from `wanted`, for people: "ctx 4096, not 8192; weights 3fa1…, not 77b0…".
/// Empty: in nothing.
std::string differences(const AnswerTraits& own, const AnswerTraits& wanted);

/// Those of `traits` that `wanted` speaks of.
AnswerTraits named_in(const AnswerTraits& traits, const AnswerTraits& wanted);

/// Whether each of `wanted` is among `own`.
bool has_all(const AnswerTraits& own, const AnswerTraits& wanted);

}  // namespace outrider
