#include "gateway/prompt.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "base/sampling_ranges.hpp"
#include "gateway/json_values.hpp"
#include "gateway/text.hpp"

namespace outrider::gateway {
namespace {

Result<void> check_model_ranges(const GenerationRequest& request, const ServedModel& served) {
  OUTRIDER_TRY(check_token_ids(request.stop.stop_token_ids, "stop_token_ids", served));
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (served.text.tokenizer->contains(id)) continue;
    return unknown_token("logit_bias." + std::to_string(id), id, served);
  }
  return {};
}

/// Each token's own logprob and its alternatives; -1 of these is no logprobs at all.
uint64_t logprobs_of(uint64_t tokens, int32_t alternatives) {
  return tokens * static_cast<uint64_t>(alternatives + 1);
}

/// Logprobs of the prompt and of each output token.
struct AnswerLogprobs {
  AnswerLogprobs(const ParsedRequest& parsed, const GenerationRequest& request) {
    // Completions repeat the prompt's beside each choice.
    const uint64_t copies = parsed.kind == RequestKind::chat ? 1 : request.choices;
    prompt = logprobs_of(copies * request.prompt.size(), request.prompt_logprobs);
    per_token = logprobs_of(request.choices, request.logprobs);
  }
  uint64_t prompt = 0;
  uint64_t per_token = 0;
};

Result<void> check_logprobs(const ParsedRequest& parsed,
                            const std::vector<GenerationRequest>& requests) {
  uint64_t of_prompts = 0;
  uint64_t all = 0;
  for (const auto& request : requests) {
    const AnswerLogprobs logprobs(parsed, request);
    of_prompts += logprobs.prompt;
    // A stream's output comes in small parts.
    all += logprobs.prompt;
    if (!parsed.stream) all += logprobs.per_token * request.stop.max_tokens;
  }
  if (all <= limits::answer_logprobs_max) return {};
  const char* field = parsed.kind == RequestKind::chat ? "top_logprobs" : "logprobs";
  if (of_prompts > limits::answer_logprobs_max && !parsed.echo) field = "prompt_logprobs";
  return invalid(field, "the answer may hold " + std::to_string(all) + " logprobs, the limit is " +
                            std::to_string(limits::answer_logprobs_max) +
                            ": ask for fewer tokens, choices or alternatives");
}

/// What errors call one of the prompts.
std::string prompt_name(const ParsedRequest& parsed, size_t index) {
  if (parsed.kind == RequestKind::chat) return "messages";
  return parsed.prompts_listed ? "prompt[" + std::to_string(index) + "]" : "prompt";
}

/// The length rules of one prompt; sets max_tokens.
Result<void> fit_context(const ParsedRequest& parsed, const ServedModel& served,
                         const std::string& field, GenerationRequest& request) {
  const ContextShare share{request.prompt.size(), served.context_tokens};
  if (request.prompt.empty()) return invalid(field, field + " has no tokens");
  const auto room = share.room(field);
  if (!room) return room.error();
  uint64_t fallback = parsed.kind == RequestKind::chat ? *room : std::min<uint64_t>(16, *room);
  // Of a stream, too: it says what the whole answer would.
  if (const AnswerLogprobs logprobs(parsed, request); logprobs.per_token > 0) {
    const uint64_t left =
        limits::answer_logprobs_max - std::min(logprobs.prompt, limits::answer_logprobs_max);
    fallback = std::min(fallback, left / logprobs.per_token);
  }
  const uint64_t wanted = parsed.max_tokens.value_or(static_cast<uint32_t>(fallback));
  OUTRIDER_TRY(share.holds(wanted));
  // `echo` with 0: one token is generated and thrown away.
  request.stop.max_tokens = static_cast<uint32_t>(std::max<uint64_t>(wanted, 1));
  if (request.stop.min_tokens > request.stop.max_tokens) {
    return invalid("min_tokens", "min_tokens is " + std::to_string(request.stop.min_tokens) +
                                     ", over the " + std::to_string(request.stop.max_tokens) +
                                     " tokens that can be generated");
  }
  return {};
}

Result<std::vector<int32_t>> tokens_of(const ParsedRequest& parsed, size_t index,
                                       const ServedModel& served) {
  const std::string name = prompt_name(parsed, index);
  const PromptInput& input = parsed.prompts[index];
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) {
    OUTRIDER_TRY(check_token_ids(*ids, name, served));
    return *ids;
  }
  return encode(std::get<std::string>(input), parsed.add_special_tokens.value_or(true), served,
                name);
}

}  // namespace

Result<std::shared_ptr<const ServedModel>> find_served(const ServedModels& models,
                                                       std::string_view name) {
  if (models.empty()) return fail(ErrorCode::unavailable, "no model is served yet");
  if (name.empty()) return models.front();
  const auto found =
      std::ranges::find_if(models, [&](const auto& served) { return served->name == name; });
  if (found != models.end()) return *found;
  return fail(ErrorCode::not_found, "the model " + std::string(name) + " is not served here",
              "model");
}

Result<PreparedRequest> prepare_request(ParsedRequest parsed, const ServedModels& models,
                                        const RequestTerms& terms) {
  PreparedRequest out;
  OUTRIDER_ASSIGN(out.served, find_served(models, parsed.model));
  const ServedModel& served = *out.served;
  OUTRIDER_TRY(check_model_ranges(parsed.generation, served));
  parsed.generation.id = terms.id;
  parsed.generation.tenant = terms.tenant;
  parsed.generation.sampling.seed = parsed.seed.value_or(terms.drawn_seed);
  out.drops_output = parsed.echo && parsed.max_tokens == 0u;
  if (parsed.kind == RequestKind::chat) {
    auto tokens = chat_prompt_tokens(parsed, served, terms.now);
    if (!tokens) return tokens.error();
    out.prompts.push_back(parsed.generation);
    out.prompts.back().prompt = std::move(*tokens);
  }
  for (size_t i = 0; i < parsed.prompts.size(); ++i) {
    auto tokens = tokens_of(parsed, i, served);
    if (!tokens) return tokens.error();
    out.prompts.push_back(parsed.generation);
    out.prompts.back().prompt = std::move(*tokens);
    if (!parsed.echo) continue;
    const auto* text = std::get_if<std::string>(&parsed.prompts[i]);
    out.echo_texts.push_back(text ? *text : decode(out.prompts.back().prompt, served));
  }
  for (size_t i = 0; i < out.prompts.size(); ++i) {
    auto& request = out.prompts[i];
    request.sampling.seed += i * request.choices;
    // echo shows the prompt's tokens beside the output's
    if (parsed.echo) request.prompt_logprobs = std::max(request.prompt_logprobs, request.logprobs);
    OUTRIDER_TRY(fit_context(parsed, served, prompt_name(parsed, i), request));
  }
  OUTRIDER_TRY(check_logprobs(parsed, out.prompts));
  out.parsed = std::move(parsed);
  out.parsed.prompts.clear();
  out.parsed.messages = Json::array();
  return out;
}

}  // namespace outrider::gateway
