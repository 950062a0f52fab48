#include "actors/continuation.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace outrider::actors {

bool SessionProgress::finished() const {
  return std::all_of(choices.begin(), choices.end(), [](const auto& c) { return c.finished; });
}

std::vector<AttemptChoices> plan_attempts(const SessionProgress& progress,
                                          const AttemptChoices& lost) {
  const bool untouched = std::all_of(lost.begin(), lost.end(), [&](uint32_t choice) {
    return progress.choices[choice].ids.empty() && !progress.choices[choice].finished;
  });
  if (untouched) return {lost};
  std::vector<AttemptChoices> attempts;
  for (const uint32_t choice : lost) {
    if (!progress.choices[choice].finished) attempts.push_back({choice});
  }
  return attempts;
}

GenerationRequest attempt_request(const GenerationRequest& whole, const SessionProgress& progress,
                                  const AttemptChoices& choices) {
  OUTRIDER_CHECK(!choices.empty());
  GenerationRequest request = whole;
  request.choices = static_cast<uint32_t>(choices.size());
  request.sampling.seed = whole.sampling.seed + choices.front();
  const ChoiceProgress& first = progress.choices[choices.front()];
  OUTRIDER_CHECK(choices.size() == 1 || first.ids.empty());
  request.committed.assign(first.ids.begin(), first.ids.begin() + committed_tokens(whole, first));
  const bool prompt_wanted = choices.front() == 0 && progress.prompt_tokens < whole.prompt.size();
  if (!prompt_wanted) request.prompt_logprobs = -1;
  return request;
}

}  // namespace outrider::actors
