#include "gateway/generation.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace outrider::gateway {
namespace {

bool is_normal(FinishReason reason) {
  return reason == FinishReason::stop || reason == FinishReason::length;
}

/// Ids come from another process; one outside the vocabulary has no text.
bool has_text(const TokenOut& token, const model::Tokenizer& tokenizer) {
  return tokenizer.contains(token.id) &&
         (!token.logprob || std::ranges::all_of(token.logprob->top, [&](const auto& entry) {
           return tokenizer.contains(entry.first);
         }));
}

const char* outcome_name(const schema::StreamDone& done) {
  using Outcome = schema::StreamDone::Outcome;
  // Nobody hung up, and nothing failed.
  if (done.error && done.error->code == ErrorCode::deadline_exceeded) return "deadline_exceeded";
  switch (done.outcome) {
    case Outcome::done:
      return "done";
    case Outcome::rejected:
      return "rejected";
    case Outcome::failed:
      return "failed";
    case Outcome::cancelled:
      return "cancelled";
  }
  return "failed";
}

}  // namespace

Generation::Generation(const Parts& parts, PreparedRequest request)
    : parts_(parts),
      request_(std::move(request)),
      channel_(static_cast<uint32_t>(request_.prompts.size())),
      running_(request_.prompts.size(), true),
      prompt_tokens_(request_.prompts.size()) {
  const auto& stop = request_.parsed.generation.stop;
  for (uint32_t i = 0; i < request_.choices(); ++i) {
    choices_.push_back(
        {model::TextStream(served().text.tokenizer, stop), 0, parts_.arrived, parts_.arrived});
  }
  for (uint32_t source = 0; source < request_.prompts.size(); ++source) {
    totals_.prompt_tokens += request_.prompts[source].prompt.size();
    parts_.backend.open(parts_.first_session + source, served().name, request_.prompts[source],
                        channel_.stream(source));
  }
}

Generation::~Generation() {
  cancel_running();
  if (!finished_) parts_.metrics.outcomes.of("cancelled").Increment();
}

kj::Promise<void> Generation::ready() {
  if (finished_) return kj::READY_NOW;
  return channel_.ready();
}

void Generation::abort(Error error) {
  if (finished_) return;
  finished_ = true;
  error_ = std::move(error);
  cancel_running();
  parts_.metrics.outcomes.of("failed").Increment();
  channel_.wake();
}

void Generation::cancel_running() {
  for (uint32_t source = 0; source < running_.size(); ++source) {
    if (running_[source]) parts_.backend.cancel(parts_.first_session + source);
    running_[source] = false;
  }
}

std::vector<ChoiceDelta> Generation::take() {
  std::vector<ChoiceDelta> out;
  auto batch = channel_.take();
  for (auto& tagged : batch.events) {
    if (finished_) break;
    if (auto* tokens = std::get_if<schema::StreamTokens>(&tagged.event)) {
      accept(tagged.source, std::move(*tokens), out);
    } else {
      accept(tagged.source, std::get<schema::StreamDone>(tagged.event));
    }
  }
  for (const uint32_t source : batch.drained) {
    if (running_[source]) parts_.backend.resume(parts_.first_session + source);
  }
  return out;
}

void Generation::accept(uint32_t source, schema::StreamTokens event,
                        std::vector<ChoiceDelta>& out) {
  const auto known = [&](const TokenOut& token) {
    return has_text(token, *served().text.tokenizer);
  };
  if (!std::ranges::all_of(event.tokens, known) ||
      !std::ranges::all_of(event.prompt_tokens, known)) {
    cancel_running();
    schema::StreamDone failed;
    failed.outcome = schema::StreamDone::Outcome::failed;
    failed.error = fail(ErrorCode::internal, "a worker sent a token outside the vocabulary");
    return accept(source, failed);
  }
  auto& prompt = prompt_tokens_[source];
  std::move(event.prompt_tokens.begin(), event.prompt_tokens.end(), std::back_inserter(prompt));
  OUTRIDER_CHECK(event.choice < request_.choices_per_prompt(), event.choice);
  ChoiceDelta delta;
  delta.choice = source * request_.choices_per_prompt() + event.choice;
  if (event.finish && !is_normal(event.finish->reason))
    event.finish.reset();  // StreamDone says why
  if (event.tokens.empty() && !event.finish) return;
  delta.finish = event.finish;
  if (event.finish) parts_.metrics.success.of(to_string(event.finish->reason)).Increment();
  auto& choice = choices_[delta.choice];
  if (!request_.drops_output) {
    observe_tokens(choice, event.tokens.size());
    delta.text = choice.text.push(event.tokens, event.finish);
    delta.tokens = std::move(event.tokens);
  }
  out.push_back(std::move(delta));
}

void Generation::observe_tokens(Choice& choice, size_t count) {
  if (count == 0) return;
  const TimePoint now = parts_.clock.now();
  if (totals_.ttft_ms == 0) {
    totals_.ttft_ms = to_ms(now - parts_.arrived);
    parts_.metrics.time_to_first_token_seconds.Observe(to_seconds(now - parts_.arrived));
  }
  if (choice.tokens == 0) {
    choice.first_token = now;
  } else {
    const double gap_s = to_seconds(now - choice.last_token) / static_cast<double>(count);
    for (size_t i = 0; i < count; ++i) parts_.metrics.inter_token_latency_seconds.Observe(gap_s);
  }
  choice.last_token = now;
  choice.tokens += count;
  totals_.completion_tokens += count;
  parts_.metrics.generation_tokens.Increment(static_cast<double>(count));
}

void Generation::accept(uint32_t source, const schema::StreamDone& event) {
  running_[source] = false;
  auto& sum = totals_.timings;
  sum.queue_us = std::max(sum.queue_us, event.timings.queue_us);
  sum.prefill_us = std::max(sum.prefill_us, event.timings.prefill_us);
  sum.decode_us = std::max(sum.decode_us, event.timings.decode_us);
  sum.preemptions += event.timings.preemptions;
  sum.cached += event.timings.cached;
  sum.draft_tokens += event.timings.draft_tokens;
  sum.accepted_tokens += event.timings.accepted_tokens;
  sum.pins_refused += event.timings.pins_refused;
  sum.pins_refused_cold += event.timings.pins_refused_cold;
  sum.moves += event.timings.moves;
  if (event.outcome != schema::StreamDone::Outcome::done) {
    error_ = event.error.value_or(fail(ErrorCode::internal, "the request failed"));
    retry_after_ms_ = event.retry_after_ms;
    cancel_running();  // the other prompts of a failed request are not wanted any more
  }
  finished_ = std::ranges::none_of(running_, [](bool b) { return b; });
  if (!finished_) return;
  parts_.metrics.outcomes.of(outcome_name(event)).Increment();
  if (!error_) observe_end();
}

void Generation::observe_end() {
  auto& m = parts_.metrics;
  const double total_s = to_seconds(parts_.clock.now() - parts_.arrived);
  m.e2e_latency_seconds.Observe(total_s);
  m.queue_time_seconds.Observe(static_cast<double>(totals_.timings.queue_us) * 1e-6);
  m.prefill_time_seconds.Observe(static_cast<double>(totals_.timings.prefill_us) * 1e-6);
  m.decode_time_seconds.Observe(static_cast<double>(totals_.timings.decode_us) * 1e-6);
  m.request_prompt_tokens.Observe(static_cast<double>(totals_.prompt_tokens));
  m.request_generation_tokens.Observe(static_cast<double>(totals_.completion_tokens));
  m.prompt_tokens.Increment(static_cast<double>(totals_.prompt_tokens));
  for (const auto& choice : choices_) {
    if (choice.tokens < 2) continue;
    m.time_per_output_token_seconds.Observe(to_seconds(choice.last_token - choice.first_token) /
                                            static_cast<double>(choice.tokens - 1));
  }
}

}  // namespace outrider::gateway
