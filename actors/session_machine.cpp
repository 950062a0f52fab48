#include "actors/session_machine.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using std::chrono::milliseconds;
using Level = schema::ClientStream::Level;
using Outcome = schema::StreamDone::Outcome;

schema::StreamDone cancelled(ErrorCode code, const char* why) {
  schema::StreamDone done;
  done.outcome = Outcome::cancelled;
  done.error = fail(code, why);
  return done;
}

AttemptChoices all_choices(uint32_t count) {
  AttemptChoices choices;
  for (uint32_t choice = 0; choice < count; ++choice) choices.push_back(choice);
  return choices;
}

std::optional<FinishReason> reason_of(const schema::Tokens& message) {
  if (message.finish.none()) return std::nullopt;
  return message.finish.finish().reason;
}

/// Not if somebody gave it up.
bool completes(std::optional<FinishReason> reason) {
  return reason == FinishReason::stop || reason == FinishReason::length;
}

/// Attempts run side by side or one after another; the client is told the longest.
void merge_timings(RequestTimings& into, const RequestTimings& from) {
  into.queue_us = std::max(into.queue_us, from.queue_us);
  into.prefill_us = std::max(into.prefill_us, from.prefill_us);
  into.decode_us = std::max(into.decode_us, from.decode_us);
  into.prompt_tokens = std::max(into.prompt_tokens, from.prompt_tokens);
  if (from.cached.all > into.cached.all) into.cached = from.cached;
  into.pins_refused = std::max(into.pins_refused, from.pins_refused);
  into.pins_refused_cold = std::max(into.pins_refused_cold, from.pins_refused_cold);
  into.preemptions += from.preemptions;
  into.draft_tokens += from.draft_tokens;
  into.accepted_tokens += from.accepted_tokens;
}

}  // namespace

schema::Refusal SessionMachine::unavailable(const char* why) {
  return schema::Refusal::of(fail(ErrorCode::unavailable, why));
}

SessionMachine::SessionMachine(SessionSetup setup, SessionPorts& ports, TimePoint now)
    : session_(setup.session),
      model_(std::move(setup.model)),
      request_(std::move(setup.request)),
      terminal_(std::move(setup.stream)),
      ports_(ports) {
  if (request_->deadline_ms > 0) deadline_ = now + milliseconds(request_->deadline_ms);
  progress_.choices.resize(request_->choices);
  begin({.choices = all_choices(request_->choices)}, true, now);
}

SessionMachine::Attempt* SessionMachine::find(RequestKey key, bool at_target) {
  if (ended_ || key.session != session_) return nullptr;
  const auto found = attempts_.find(key.generation);
  if (found == attempts_.end() || found->second.at_target() != at_target) return nullptr;
  return &found->second;
}

/// Does not put the next probe off: what brings nothing new must not hide that something is
/// missing.
void SessionMachine::heard(Attempt& attempt) {
  attempt.silent = 0;
  accepted_ = true;
  if (attempt.phase == Phase::streaming) return;
  attempt.phase = Phase::streaming;
  retire_leaving();
}

void SessionMachine::on(const schema::Accepted& message, TimePoint now) {
  Attempt* attempt = find(message.key, true);
  if (!attempt) return;
  heard(*attempt);
  attempt->due = now + k_answer_timeout;
}

void SessionMachine::on(const schema::Rejected& message, TimePoint now) {
  if (!find(message.key, true)) return;
  switch (message.refusal.error_code()) {
    case ErrorCode::unavailable:
    case ErrorCode::overloaded:
      return move(message.key.generation, message.refusal, now);
    case ErrorCode::not_found:  // Between the two of them only: the client has named nothing wrong.
      return move(message.key.generation, unavailable("the worker lost the request"), now);
    default:
      return refuse(message.refusal);
  }
}

void SessionMachine::on(const schema::Leaving& message, TimePoint now) {
  if (find(message.key, true)) hand_over(message.key.generation, now);
}

void SessionMachine::on(const schema::Tokens& message, TimePoint now) {
  Attempt* attempt = find(message.key, true);
  if (!attempt || message.choice >= attempt->choices.size()) return;
  heard(*attempt);
  if (blocked_) return;  // Asked for again when the client reads on.
  const uint32_t generation = message.key.generation;
  if (!take(generation, *attempt, message, now)) ask_about_gap(generation, *attempt);
}

/// One question for each gap, or each later message repeats it: each answer ends in a Done, and
/// what it brings may be not heard for now.
void SessionMachine::ask_about_gap(uint32_t generation, Attempt& attempt) {
  if (blocked_ || attempt.gap_asked) return;
  attempt.gap_asked = true;
  ask_missing(generation, attempt);
}

/// False if something before this message is missing.
bool SessionMachine::take(uint32_t generation, Attempt& attempt, const schema::Tokens& message,
                          TimePoint now) {
  const uint32_t choice = attempt.choices[message.choice];
  ChoiceProgress& progress = progress_.choices[choice];
  if (progress.finished || !is_heard(generation, choice)) return true;
  if (message.first_index > progress.ids.size()) return false;
  if (choice == 0 && lacks_prompt(message)) return false;
  auto tokens = schema::decode_tokens(message.tokens);
  auto prompt = schema::decode_tokens(message.prompt_tokens);
  if (!tokens || !prompt) {
    move(generation, unavailable("the worker sent a corrupt message"), now);
    return true;
  }
  schema::StreamTokens event;
  event.choice = choice;
  event.first_index = static_cast<uint32_t>(progress.ids.size());
  event.tokens = std::move(*tokens);
  event.prompt_tokens = std::move(*prompt);
  if (!merge(message, event)) return true;
  const auto reason = reason_of(message);
  if (completes(reason)) {
    progress.finished = true;
    event.finish = message.finish.finish();
  }
  if (!event.tokens.empty() || !event.prompt_tokens.empty() || event.finish) {
    attempt.losses = 0;
    attempt.avoid.clear();
    attempt.gap_asked = false;
    attempt.delivered = true;
    progress.source = generation;
    attempt.due = now + k_answer_timeout;
    deliver(std::move(event));
    if (ended_) return true;
    if (progress.finished) {
      drop_finished();
      retire_leaving();
      if (attempts_.count(generation) == 0) return true;
    }
  }
  if (reason == FinishReason::deadline_exceeded) {
    end(cancelled(ErrorCode::deadline_exceeded, "the request's deadline passed"));
  } else if (reason == FinishReason::cancelled) {  // Not by us: the target is giving up.
    move(generation, unavailable("the worker stopped"), now);
  }
  return true;  // If it failed, Done says why.
}

/// Output, or its end, never comes before all prompt tokens that were asked for. Without an output
/// the end may come alone, some steps after the last of them.
bool SessionMachine::lacks_prompt(const schema::Tokens& message) const {
  if (message.prompt_first_index > progress_.prompt_tokens) return true;
  if (request_->prompt_logprobs < 0) return false;
  const size_t comes = size_t{message.prompt_first_index} + message.prompt_tokens.ids.size();
  return (completes(reason_of(message)) || !message.tokens.ids.empty()) &&
         std::max<size_t>(progress_.prompt_tokens, comes) < request_->prompt.size();
}

/// Leaves in `out`, which has all that the message says, what of it is new. False if the session
/// ended, because it contradicts what the client already has.
bool SessionMachine::merge(const schema::Tokens& message, schema::StreamTokens& out) {
  std::vector<TokenOut> said = std::exchange(out.tokens, {});
  std::vector<TokenOut> prompt = std::exchange(out.prompt_tokens, {});
  std::vector<int32_t>& ids = progress_.choices[out.choice].ids;
  for (size_t i = 0; i < said.size(); ++i) {
    const size_t index = message.first_index + i;
    if (index >= ids.size()) {
      ids.push_back(said[i].id);
      out.tokens.push_back(std::move(said[i]));
    } else if (ids[index] != said[i].id) {
      // A twin that disagrees breaks the promise of exactness: never paper over it.
      refuse(schema::Refusal::of(
          fail(ErrorCode::internal, "a worker's continuation differs from the stream so far")));
      return false;
    }
  }
  if (out.choice != 0) return true;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (message.prompt_first_index + i < progress_.prompt_tokens) continue;
    ++progress_.prompt_tokens;
    out.prompt_tokens.push_back(std::move(prompt[i]));
  }
  return true;
}

void SessionMachine::deliver(schema::StreamTokens event) {
  switch (terminal_.push(std::move(event))) {
    case Level::flowing:
      return;
    case Level::gone:
      return on_cancel();
    case Level::full:
      blocked_ = true;
      for (auto& [generation, attempt] : attempts_) {
        if (attempt.at_target())
          ports_.tell(attempt.target, schema::SetParked{key(generation), true});
      }
  }
}

void SessionMachine::on(const schema::Done& message, TimePoint) {
  Attempt* attempt = find(message.key, true);
  if (!attempt) return;
  heard(*attempt);
  if (!message.error.none()) return refuse(message.error);
  const bool complete =
      std::all_of(attempt->choices.begin(), attempt->choices.end(),
                  [&](uint32_t choice) { return progress_.choices[choice].finished; });
  if (!complete) return ask_about_gap(message.key.generation, *attempt);
  RequestTimings timings = message.timings;
  // What a moved request finds cached is what was computed for it before.
  if (attempt->replaces != 0) timings.cached = {};
  merge_timings(timings_, timings);
  ports_.tell(attempt->target, schema::DoneAck{message.key});
  attempts_.erase(message.key.generation);
  maybe_done();
}

void SessionMachine::on_down(const caf::actor_addr& target, TimePoint now) {
  std::vector<uint32_t> lost;
  for (const auto& [generation, attempt] : attempts_) {
    if (attempt.at_target() && attempt.target.address() == target) lost.push_back(generation);
  }
  for (const uint32_t generation : lost) {
    if (!ended_) move(generation, unavailable("the worker was lost"), now);
  }
}

void SessionMachine::on_cancel() {
  if (!ended_) end(cancelled(ErrorCode::cancelled, "the client cancelled the request"));
}

void SessionMachine::on_resume(TimePoint now) {
  if (ended_ || !blocked_) return;
  blocked_ = false;
  for (auto& [generation, attempt] : attempts_) {
    if (!attempt.at_target()) continue;
    ports_.tell(attempt.target, schema::SetParked{key(generation), false});
    ask_missing(generation, attempt);
    attempt.silent = 0;
    attempt.due = now + k_answer_timeout;
  }
  maybe_done();
}

void SessionMachine::on_time(TimePoint now) {
  if (ended_) return;
  if (deadline() && now >= *deadline()) {
    schema::StreamDone done =
        cancelled(ErrorCode::deadline_exceeded, "the request's deadline passed");
    if (!accepted_) done.outcome = Outcome::rejected;
    return end(std::move(done));
  }
  std::vector<uint32_t> due;
  for (const auto& [generation, attempt] : attempts_) {
    if (attempt.due <= now) due.push_back(generation);
  }
  for (const uint32_t generation : due) {
    if (ended_) return;
    Attempt& attempt = attempts_.at(generation);
    switch (attempt.phase) {
      case Phase::waiting:
        ask(generation, attempt, now);
        break;
      case Phase::placing:
        try_again(generation, unavailable("no router answers"), now);
        break;
      case Phase::submitted:
      case Phase::streaming:
        probe(generation, attempt, now);
    }
  }
}

std::optional<TimePoint> SessionMachine::next_due() const {
  if (ended_) return std::nullopt;
  std::optional<TimePoint> due = deadline();
  for (const auto& [generation, attempt] : attempts_) {
    if (!due || attempt.due < *due) due = attempt.due;
  }
  return due;
}

void SessionMachine::probe(uint32_t generation, Attempt& attempt, TimePoint now) {
  attempt.due = now + k_answer_timeout;
  attempt.gap_asked = false;
  // Again: the last one may have been lost, and a row that stays parked says nothing any more.
  ports_.tell(attempt.target, schema::SetParked{key(generation), blocked_});
  if (blocked_) return;  // Silence is what we asked for; a dead target is DOWN.
  if (++attempt.silent > limits::session_probes_max) {
    return move(generation, unavailable("the worker does not answer"), now);
  }
  ask_missing(generation, attempt);
}

void SessionMachine::ask_missing(uint32_t generation, Attempt& attempt) {
  for (uint32_t i = 0; i < attempt.choices.size(); ++i) {
    const uint32_t choice = attempt.choices[i];
    const ChoiceProgress& progress = progress_.choices[choice];
    const bool last = i + 1 == attempt.choices.size();
    if (progress.finished && !last) continue;  // The last one also asks for a lost Done.
    ports_.tell(attempt.target,
                schema::Resend{key(generation), i, static_cast<uint32_t>(progress.ids.size()),
                               choice == 0 ? progress_.prompt_tokens : 0});
  }
}

void SessionMachine::maybe_done() {
  if (ended_ || blocked_ || !attempts_.empty() || !progress_.finished()) return;
  schema::StreamDone done;
  done.timings = timings_;
  end(std::move(done));
}

/// The end of a request that cannot be served.
void SessionMachine::refuse(const schema::Refusal& refusal) {
  schema::StreamDone done;
  done.outcome = accepted_ ? Outcome::failed : Outcome::rejected;
  done.error = refusal.error();
  done.retry_after_ms = refusal.retry_after_ms;
  if (done.error->code == ErrorCode::deadline_exceeded && accepted_) {
    done.outcome = Outcome::cancelled;
  }
  end(std::move(done));
}

void SessionMachine::end(schema::StreamDone done) {
  ended_ = true;
  done.timings = timings_;
  for (auto& [generation, attempt] : attempts_) {
    if (attempt.at_target()) ports_.tell(attempt.target, schema::CancelRequest{key(generation)});
  }
  attempts_.clear();
  terminal_.finish(std::move(done));
}

}  // namespace outrider::actors
