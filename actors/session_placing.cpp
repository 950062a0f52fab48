#include <algorithm>

#include "actors/session_machine.hpp"
#include "base/hash.hpp"
#include "base/limits.hpp"

// The half of SessionMachine that finds a target and hands the request over.
namespace outrider::actors {

using std::chrono::milliseconds;

/// A new attempt, placed at once, or after a pause if earlier ones failed.
void SessionMachine::begin(Attempt begun, TimePoint now) {
  const uint32_t generation = ++last_generation_;
  Attempt& attempt = attempts_[generation] = std::move(begun);
  if (attempt.tries == 0 || attempt.kv_target) {
    ask(generation, attempt, now);
  } else {
    attempt.due = now + backoff(attempt.tries);
  }
}

void SessionMachine::ask(uint32_t generation, Attempt& attempt, TimePoint now) {
  attempt.phase = Phase::placing;
  attempt.due = now + k_answer_timeout;
  const ChoiceProgress& first = progress_.choices[attempt.choices.front()];
  const uint32_t committed = committed_tokens(*request_, first);
  schema::PlaceRequest place;
  place.key = key(generation);
  place.model = model_;
  place.fingerprint = fingerprint_;
  place.prompt_tokens = static_cast<uint32_t>(request_->prompt.size()) + committed;
  place.max_tokens = request_->stop.max_tokens - std::min(request_->stop.max_tokens, committed);
  place.choices = static_cast<uint32_t>(attempt.choices.size());
  place.tenant = request_->tenant;
  place.avoid = attempt.avoid;
  place.replaces = attempt.replaces;
  ports_.place(std::move(place));
}

void SessionMachine::on(const schema::PlaceReply& reply, TimePoint now) {
  Attempt* attempt = find(reply.key, false);
  if (!attempt || attempt->phase != Phase::placing) return;
  const uint32_t generation = reply.key.generation;
  if (reply.refusal.none() &&
      (!reply.target || (!fingerprint_.empty() && reply.fingerprint != fingerprint_))) {
    try_again(generation, unavailable("the router offered a worker with another fingerprint"), now);
  } else if (reply.refusal.none()) {
    attempt->target = reply.target;
    attempt->worker = reply.worker;
    // Fixed before the first token: a second attempt must never continue on other numerics.
    fingerprint_ = reply.fingerprint;
    submit(generation, *attempt, now);
  } else if (reply.refusal.error_code() == ErrorCode::unavailable ||
             (accepted_ && reply.refusal.error_code() == ErrorCode::overloaded)) {
    try_again(generation, reply.refusal, now);
  } else {
    refuse(reply.refusal);
  }
}

/// Another try of an attempt that has no target.
void SessionMachine::try_again(uint32_t generation, const schema::Refusal& why, TimePoint now) {
  Attempt& attempt = attempts_.at(generation);
  if (++attempt.tries >= limits::placement_attempts_max) return refuse(why);
  attempt.phase = Phase::waiting;
  attempt.due = now + backoff(attempt.tries);
}

void SessionMachine::submit(uint32_t generation, Attempt& attempt, TimePoint now) {
  attempt.phase = Phase::submitted;
  attempt.due = now + k_answer_timeout;
  ports_.watch(attempt.target);
  GenerationRequest request = attempt_request(*request_, progress_, attempt.choices);
  request.deadline_ms = deadline_left_ms(now);
  std::vector<int32_t> ids = std::move(request.prompt);
  const auto prompt_tokens = static_cast<uint32_t>(ids.size());
  ids.insert(ids.end(), request.committed.begin(), request.committed.end());
  constexpr size_t part_tokens = limits::prompt_part_tokens_max;
  const auto parts = static_cast<uint32_t>((ids.size() + part_tokens - 1) / part_tokens);
  ports_.tell(attempt.target, schema::SubmitBegin{key(generation),
                                                  {},
                                                  schema::to_wire(request),
                                                  prompt_tokens,
                                                  static_cast<uint32_t>(request.committed.size()),
                                                  parts,
                                                  attempt.kv_worker,
                                                  attempt.kv_target});
  for (uint32_t part = 0; part < parts; ++part) {
    const auto from = ids.begin() + static_cast<ptrdiff_t>(part * part_tokens);
    const size_t count = std::min(part_tokens, ids.size() - part * part_tokens);
    ports_.tell(
        attempt.target,
        schema::PromptPart{key(generation), part,
                           std::vector<int32_t>(from, from + static_cast<ptrdiff_t>(count))});
  }
  ports_.tell(attempt.target, schema::SubmitEnd{key(generation)});
  if (blocked_) ports_.tell(attempt.target, schema::SetParked{key(generation), true});
}

/// The target of this attempt is lost.
void SessionMachine::move(uint32_t generation, const schema::Refusal& why, TimePoint now) {
  go_on_elsewhere(generation, why, false, now);
}

/// What is unfinished of an attempt goes elsewhere, under new generations. If it is handed over,
/// its target lives for a while yet.
void SessionMachine::go_on_elsewhere(uint32_t generation, const schema::Refusal& why,
                                     bool is_handed_over, TimePoint now) {
  Attempt lost = std::move(attempts_.at(generation));
  attempts_.erase(generation);
  // Harmless if it is dead; a live one that was only slow must stop.
  ports_.tell(lost.target, schema::CancelRequest{key(generation)});
  const uint32_t tries = lost.tries + 1;
  if (tries >= limits::placement_attempts_max) return refuse(why);
  const bool nothing_delivered =
      progress_.prompt_tokens == 0 &&
      std::all_of(progress_.choices.begin(), progress_.choices.end(),
                  [](const ChoiceProgress& choice) { return choice.ids.empty(); });
  if (attempts_.empty() && nothing_delivered) fingerprint_.clear();  // Any worker will do again.
  lost.avoid.push_back(lost.worker);
  for (AttemptChoices& choices : plan_attempts(progress_, lost.choices)) {
    begin({.choices = std::move(choices),
           .tries = tries,
           .avoid = lost.avoid,
           .replaces = generation,
           .kv_target = is_handed_over ? lost.target : schema::TargetHandle(),
           .kv_worker = is_handed_over ? lost.worker : 0},
          now);
  }
  maybe_done();
}

/// Doubles with each try; the second half is spread by the session, so that the sessions of a lost
/// worker do not come back as one.
Duration SessionMachine::backoff(uint32_t tries) const {
  const uint32_t doubled = limits::placement_backoff_ms << std::min(tries - 1, 16u);
  const uint32_t longest = std::min(doubled, limits::placement_backoff_max_ms);
  const uint64_t mix = hash64(std::as_bytes(std::span(&session_, 1)), tries);
  return milliseconds(longest / 2 + mix % (longest / 2 + 1));
}

/// 0: none. A deadline that has passed is left to on_time().
uint32_t SessionMachine::deadline_left_ms(TimePoint now) const {
  if (!deadline_) return 0;
  const auto left = std::chrono::duration_cast<milliseconds>(*deadline_ - now).count();
  return static_cast<uint32_t>(std::max<int64_t>(left, 1));
}

}  // namespace outrider::actors
