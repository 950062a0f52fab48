#include "tests/exactness/cases.hpp"

#include <algorithm>

#include "base/utf8.hpp"

namespace outrider::exactness {
namespace {

int32_t random_id(Random& random, const CaseLimits& limits) {
  return static_cast<int32_t>(random.below(limits.vocab));
}

float between(Random& random, float low, float high) {
  return low + (high - low) * random.uniform();
}

/// Random ids, in half of the cases from few, so that penalties and copying matter.
std::vector<int32_t> random_prompt(Random& random, const CaseLimits& limits) {
  const uint32_t most = random.chance(0.1f) ? limits.long_prompt_tokens : limits.prompt_tokens;
  std::vector<int32_t> alphabet(random.chance(0.5f) ? 8 : 256);
  for (int32_t& id : alphabet) id = random_id(random, limits);
  std::vector<int32_t> prompt(1 + random.below(most));
  for (int32_t& id : prompt) id = alphabet[random.below(static_cast<uint32_t>(alphabet.size()))];
  if (random.chance(0.6f)) {
    Random family(limits.family_seed + random.below(limits.families));
    const uint32_t room = limits.long_prompt_tokens - static_cast<uint32_t>(prompt.size());
    std::vector<int32_t> shared(std::min(room, random.below(2 * limits.prompt_tokens)));
    for (int32_t& id : shared) id = random_id(family, limits);
    prompt.insert(prompt.begin(), shared.begin(), shared.end());
  }
  return prompt;
}

/// Most begin alike and differ near their end.
std::vector<int32_t> random_far_prompt(Random& random, const CaseLimits& limits) {
  std::vector<int32_t> prompt(limits.far_prompt_tokens - random.below(k_far_slack));
  const auto size = static_cast<uint32_t>(prompt.size());
  const uint32_t shared = random.chance(0.75f) ? size - random.below(80) : random.below(size);
  Random family(limits.family_seed + limits.families);
  for (uint32_t i = 0; i < size; ++i) prompt[i] = random_id(i < shared ? family : random, limits);
  return prompt;
}

SamplingParams random_sampling(Random& random, const CaseLimits& limits) {
  SamplingParams params;
  params.seed = random.next_u64();
  params.temperature = random.chance(0.35f) ? 0.0f : between(random, 0.2f, 1.6f);
  if (random.chance(0.3f)) params.top_k = 1 + static_cast<int32_t>(random.below(60));
  if (random.chance(0.4f)) params.top_p = between(random, 0.05f, 1.0f);
  if (random.chance(0.2f)) params.min_p = between(random, 0.0f, 0.3f);
  if (random.chance(0.3f)) params.repetition_penalty = between(random, 0.8f, 1.5f);
  if (random.chance(0.2f)) params.presence_penalty = between(random, -1.0f, 2.0f);
  if (random.chance(0.2f)) params.frequency_penalty = between(random, -1.0f, 2.0f);
  if (random.chance(0.2f)) {
    for (uint32_t i = 0; i < 1 + random.below(4); ++i) {
      params.logit_bias.emplace_back(random_id(random, limits), between(random, -5.0f, 12.0f));
    }
    std::sort(params.logit_bias.begin(), params.logit_bias.end());
    const auto same_id = [](const auto& a, const auto& b) { return a.first == b.first; };
    params.logit_bias.erase(
        std::unique(params.logit_bias.begin(), params.logit_bias.end(), same_id),
        params.logit_bias.end());
  }
  return params;
}

StopParams random_stop(Random& random, const CaseLimits& limits, const SamplingParams& sampling,
                       const model::Tokenizer& tokenizer) {
  StopParams stop;
  stop.max_tokens = 1 + random.below(limits.output_tokens);
  stop.ignore_eos = random.chance(0.5f);
  if (random.chance(0.2f)) stop.min_tokens = random.below(stop.max_tokens + 1);
  // Ids with a bias are likely to be met.
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (random.chance(0.5f)) stop.stop_token_ids.push_back(id);
  }
  if (random.chance(0.25f)) {
    static const char* const common[] = {"e", " t", "\n", "an", ". ", "the"};
    stop.stop_strings.emplace_back(common[random.below(6)]);
    const std::string_view token = tokenizer.token_bytes(random_id(random, limits));
    if (!token.empty() && utf8_valid(token)) stop.stop_strings.emplace_back(token);
    stop.include_stop_str_in_output = random.chance(0.5f);
  }
  return stop;
}

}  // namespace

GenerationRequest random_request(Random& random, const CaseLimits& limits, PromptLength length,
                                 const model::Tokenizer& tokenizer) {
  GenerationRequest request;
  request.prompt = length == PromptLength::far ? random_far_prompt(random, limits)
                                               : random_prompt(random, limits);
  request.sampling = random_sampling(random, limits);
  request.stop = random_stop(random, limits, request.sampling, tokenizer);
  if (random.chance(0.15f)) request.choices = 2 + random.below(3);
  if (random.chance(0.5f)) request.logprobs = static_cast<int32_t>(random.below(6));
  if (random.chance(0.15f)) request.prompt_logprobs = static_cast<int32_t>(random.below(4));
  request.priority = static_cast<int32_t>(random.below(3)) - 1;
  if (random.chance(0.1f)) request.tenant = "tenant";
  if (random.chance(0.1f)) request.cache_salt = "salt";
  request.kv.stop_rule = static_cast<KvStopRule>(1 + random.below(k_kv_stop_rules));
  request.kv.pin = random.chance(0.15f);
  if (random.chance(request.kv.pin ? 0.6f : 0.1f)) request.kv.ttl_s = 1 + random.below(3);
  return request;
}

}  // namespace outrider::exactness
