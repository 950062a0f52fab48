#include "model/engine_request.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "base/sampling_ranges.hpp"

namespace outrider::model {
namespace {

Result<void> check_ids(std::span<const int32_t> ids, uint32_t vocabulary, const char* field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || static_cast<uint32_t>(ids[i]) >= vocabulary) {
      return fail(ErrorCode::invalid_argument,
                  "token " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                      " is not in the vocabulary of " + std::to_string(vocabulary),
                  field);
    }
  }
  return {};
}

Result<void> check(const GenerationRequest& request, const LoadedModel& model,
                   uint32_t context_tokens) {
  if (request.prompt.empty()) {
    return fail(ErrorCode::invalid_argument, "the prompt has no tokens", "prompt");
  }
  if (const auto room = ContextShare{request.prompt.size(), context_tokens}.room("prompt"); !room) {
    return room.error();
  }
  OUTRIDER_TRY(check_ids(request.prompt, model.config.vocab, "prompt"));
  OUTRIDER_TRY(check_ids(request.committed, model.config.vocab, "committed"));
  if (request.choices == 0 || request.choices > limits::choices_max) {
    return fail(ErrorCode::invalid_argument,
                "n is " + std::to_string(request.choices) + ", not 1 to " +
                    std::to_string(limits::choices_max),
                "n");
  }
  for (const std::string& text : request.stop.stop_strings) {
    if (text.empty()) return fail(ErrorCode::invalid_argument, "a stop string is empty", "stop");
  }
  if (!request.committed.empty() && request.choices != 1) {
    return fail(ErrorCode::invalid_argument, "only a single choice can be continued", "committed");
  }
  return {};
}

std::vector<int32_t> ending_ids(const StopParams& stop, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = stop.stop_token_ids;
  if (!stop.ignore_eos) {
    const auto eog = tokenizer.end_of_generation();
    ids.insert(ids.end(), eog.begin(), eog.end());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// An earlier attempt's tokens end the choice only with the last of them, or not at all.
Result<void> replay(ActiveRequest& active) {
  const std::vector<int32_t>& committed = active.request.committed;
  for (size_t i = 0; i < committed.size(); ++i) {
    const auto finish = active.commit(active.choices[0], committed[i]);
    if (finish && i + 1 < committed.size()) {
      return fail(ErrorCode::invalid_argument,
                  "the output ended at token " + std::to_string(i) + " of " +
                      std::to_string(committed.size()) + " committed ones",
                  "committed");
    }
    active.over = finish;
  }
  if (active.max_tokens == 0) active.over = Finish{.reason = FinishReason::length};
  return {};
}

}  // namespace

bool ActiveRequest::done() const {
  return std::all_of(choices.begin(), choices.end(),
                     [](const Choice& c) { return c.stage == Choice::Stage::done; });
}

bool ActiveRequest::forks_pending() const {
  return choices.size() > 1 && choices[1].stage == Choice::Stage::dormant;
}

uint32_t ActiveRequest::length(const Choice& choice) const {
  return prompt_size() + (over ? 0 : static_cast<uint32_t>(choice.output.size()));
}

int32_t ActiveRequest::token_at(const Choice& choice, uint32_t position) const {
  return position < prompt_size() ? request.prompt[position]
                                  : choice.output[position - prompt_size()];
}

uint32_t ActiveRequest::cacheable_tokens(const Choice& choice) const {
  const bool scores = choice.index == 0 && wants_prompt_logprobs() && prompt_scored < prompt_size();
  return (scores ? std::max(prompt_scored, 1u) : length(choice)) - 1;
}

std::span<const int32_t> ActiveRequest::forbidden(const Choice& choice, size_t ahead) const {
  if (choice.output.size() + ahead >= request.stop.min_tokens) return {};
  return enders;
}

void ActiveRequest::set_output(Choice& choice, std::span<const int32_t> output) const {
  choice.output.assign(output.begin(), output.end());
  choice.drafts.reset();
  if (!TokenCounts::needed(request.sampling)) return;
  choice.counts = {};
  for (const int32_t id : request.prompt) choice.counts.add_prompt(id);
  for (const int32_t id : output) choice.counts.add_output(id);
}

std::optional<Finish> ActiveRequest::commit(Choice& choice, int32_t id) {
  choice.output.push_back(id);
  if (choice.drafts) choice.drafts->commit(id);
  if (TokenCounts::needed(request.sampling)) choice.counts.add_output(id);
  if (std::binary_search(enders.begin(), enders.end(), id)) {
    return Finish{.reason = FinishReason::stop, .stop_token = id};
  }
  if (choice.text) {
    choice.text->push(id);
    if (const auto match = choice.text->stop_string()) {
      return Finish{.reason = FinishReason::stop, .stop_string = static_cast<int32_t>(*match)};
    }
  }
  if (choice.output.size() >= max_tokens) return Finish{.reason = FinishReason::length};
  return std::nullopt;
}

RequestTimings ActiveRequest::timings(TimePoint now) const {
  const auto us = [](Duration d) {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
  };
  const TimePoint start = admitted.value_or(now);
  const TimePoint first = first_token.value_or(now);
  return {.queue_us = us(start - submitted),
          .prefill_us = us(first - start),
          .decode_us = us(now - first),
          .prompt_tokens = prompt_size(),
          .preemptions = preemptions,
          .cached = cached,
          .draft_tokens = draft_tokens,
          .accepted_tokens = accepted_tokens,
          .pins_refused = pins_refused,
          .pins_refused_cold = retention->pins_refused ? retention->pins_refused->load() : 0};
}

Result<ActiveRequest> make_active_request(RequestKey key, GenerationRequest request,
                                          const LoadedModel& model, uint32_t context_tokens,
                                          KvCache& cache) {
  OUTRIDER_TRY(check(request, model, context_tokens));
  ActiveRequest active;
  active.key = key;
  active.max_tokens = std::min(request.stop.max_tokens,
                               context_tokens - static_cast<uint32_t>(request.prompt.size()));
  active.enders = ending_ids(request.stop, *model.tokenizer);
  active.request = std::move(request);
  const GenerationRequest& r = active.request;
  active.retention = std::make_shared<TierRetention>(
      TierRetention{r.tenant, r.kv.pin, r.kv.ttl_s,
                    r.kv.pin ? std::make_shared<std::atomic<uint32_t>>(0) : nullptr});
  for (uint32_t i = 0; i < r.choices; ++i) {
    Choice& choice = active.choices.emplace_back(cache);
    choice.index = i;
    choice.stage = i == 0 ? Choice::Stage::waiting : Choice::Stage::dormant;
    if (!r.stop.stop_strings.empty()) {
      choice.text = std::make_unique<TextStream>(model.tokenizer, r.stop);
    }
    if (TokenCounts::needed(r.sampling)) {
      for (const int32_t id : r.prompt) choice.counts.add_prompt(id);
    }
  }
  OUTRIDER_TRY(replay(active));
  return active;
}

}  // namespace outrider::model
