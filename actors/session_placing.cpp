#include <algorithm>
#include <string>

#include "actors/session_machine.hpp"
#include "base/hash.hpp"
#include "base/limits.hpp"

// The half of SessionMachine that finds a target and hands the request over.
namespace outrider::actors {

using std::chrono::milliseconds;

/// A new attempt; `at_once`, or after a pause if earlier ones failed.
void SessionMachine::begin(Attempt begun, bool at_once, TimePoint now) {
  const uint32_t generation = ++last_generation_;
  Attempt& attempt = attempts_[generation] = std::move(begun);
  if (at_once) {
    ask(generation, attempt, now);
  } else {
    attempt.due = now + backoff(attempt.losses);
  }
}

void SessionMachine::ask(uint32_t generation, Attempt& attempt, TimePoint now) {
  split(attempt, now);
  attempt.phase = Phase::placing;
  attempt.due = now + k_answer_timeout;
  if (attempt.unplaced == 0) attempt.unplaced_since = now;
  const ChoiceProgress& first = progress_.choices[attempt.choices.front()];
  const uint32_t committed = committed_tokens(*request_, first);
  schema::PlaceRequest place;
  place.key = key(generation);
  place.model = model_;
  place.fingerprint = is_free(attempt) ? "" : fingerprint_;
  place.prompt_tokens = static_cast<uint32_t>(request_->prompt.size()) + committed;
  place.max_tokens = request_->stop.max_tokens - std::min(request_->stop.max_tokens, committed);
  place.choices = static_cast<uint32_t>(attempt.choices.size());
  place.tenant = request_->tenant;
  place.avoid = attempt.avoid;
  place.replaces = attempt.replaces;
  place.goes_on = target_goes_on(attempt);
  ports_.place(std::move(place));
}

void SessionMachine::on(const schema::PlaceReply& reply, TimePoint now) {
  Attempt* attempt = find(reply.key, false);
  if (!attempt || attempt->phase != Phase::placing) return;
  const uint32_t generation = reply.key.generation;
  const bool fits = fingerprint_.empty() || reply.fingerprint == fingerprint_ || is_free(*attempt);
  const ErrorCode why = reply.refusal.none() ? ErrorCode::internal : reply.refusal.error_code();
  if (reply.refusal.none() && (!reply.target || !fits)) {
    try_again(generation, unavailable("the router offered a worker with another fingerprint"), now);
  } else if (reply.refusal.none() &&
             plan_attempts(progress_, attempt->choices).front() != attempt->choices) {
    ask(generation, *attempt, now);  // For less: the rest would stay charged.
  } else if (reply.refusal.none()) {
    attempt->target = reply.target;
    attempt->worker = reply.worker;
    // Fixed before the first token: a second attempt must never continue on other numerics.
    fingerprint_ = reply.fingerprint;
    submit(generation, *attempt, now);
  } else if (why == ErrorCode::unavailable) {
    try_again(generation, reply.refusal, now);
  } else if (why == ErrorCode::overloaded && (accepted_ || attempt->replaces != 0)) {
    wait_for_room(*attempt, reply.refusal, now);
  } else {
    refuse(reply.refusal);
  }
}

/// A target that leaves may have sent more since this attempt was planned.
void SessionMachine::split(Attempt& attempt, TimePoint now) {
  auto parts = plan_attempts(progress_, attempt.choices);
  attempt.choices = std::move(parts.front());
  for (size_t i = 1; i < parts.size(); ++i) {
    Attempt other = attempt;
    other.phase = Phase::waiting;
    other.full_since.reset();
    other.choices = std::move(parts[i]);
    begin(std::move(other), true, now);
  }
}

/// Another try of an attempt that has no target. That there was none counts apart from targets that
/// failed it: those say that the request may be what kills them.
void SessionMachine::try_again(uint32_t generation, const schema::Refusal& why, TimePoint now) {
  Attempt& attempt = attempts_.at(generation);
  const uint32_t tries = attempt.unplaced + 1;
  if (!target_goes_on(attempt)) attempt.unplaced = tries;
  if (attempt.unplaced >= limits::placement_attempts_max) return give_up_placing(attempt, why, now);
  attempt.phase = Phase::waiting;
  attempt.due = now + backoff(tries);
}

/// Whoever was let in once is not turned away because a worker less has to do for all.
void SessionMachine::wait_for_room(Attempt& attempt, const schema::Refusal& why, TimePoint now) {
  if (!attempt.full_since) attempt.full_since = now;
  const bool too_long = now - *attempt.full_since >= milliseconds(limits::placement_full_ms);
  if (too_long && !target_goes_on(attempt)) return refuse(why);
  attempt.phase = Phase::waiting;
  attempt.due = now + backoff(limits::placement_attempts_max);
}

bool SessionMachine::nothing_delivered() const {
  return progress_.prompt_tokens == 0 &&
         std::all_of(progress_.choices.begin(), progress_.choices.end(),
                     [](const ChoiceProgress& choice) { return choice.ids.empty(); });
}

bool SessionMachine::is_free(const Attempt& attempt) const {
  return nothing_delivered() &&
         std::all_of(attempts_.begin(), attempts_.end(),
                     [&](const auto& entry) { return &entry.second == &attempt; });
}

bool SessionMachine::target_goes_on(const Attempt& attempt) const {
  return std::any_of(attempts_.begin(), attempts_.end(), [&](const auto& entry) {
    const uint32_t generation = entry.first;
    const Attempt& other = entry.second;
    if (&other == &attempt || !other.leaves || other.phase != Phase::streaming) return false;
    return std::any_of(attempt.choices.begin(), attempt.choices.end(), [&](uint32_t choice) {
      return other.computes(choice) && !is_taken_over(generation, choice);
    });
  });
}

void SessionMachine::submit(uint32_t generation, Attempt& attempt, TimePoint now) {
  attempt.phase = Phase::submitted;
  attempt.due = now + k_answer_timeout;
  attempt.full_since = std::nullopt;
  ports_.watch(attempt.target);
  GenerationRequest request = attempt_request(*request_, progress_, attempt.choices);
  request.deadline_ms = deadline_left_ms(now);
  request.continues = accepted_ || attempt.replaces != 0;
  if (attempt.replaces != 0) ++timings_.moves;
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

/// The target of this attempt is lost: what is unfinished goes elsewhere, under new generations.
void SessionMachine::move(uint32_t generation, const schema::Refusal& why, TimePoint now) {
  Attempt lost = std::move(attempts_.at(generation));
  attempts_.erase(generation);
  // Harmless if it is dead; a live one that was only slow must stop.
  ports_.tell(lost.target, schema::CancelRequest{key(generation)});
  if (lost.leaves) {  // Others are on their way already, but will get nothing there.
    for (auto& [number, attempt] : attempts_) {
      if (attempt.kv_worker != lost.worker) continue;
      attempt.kv_target = nullptr;
      attempt.kv_worker = 0;
    }
    return maybe_done();
  }
  const bool goes_on = target_goes_on(lost);
  if (!goes_on && lost.losses + 1 >= limits::placement_attempts_max) return give_up(why);
  if (attempts_.empty() && nothing_delivered()) fingerprint_.clear();  // Any worker will do again.
  Attempt common;
  if (!lost.delivered) {  // Who left before may still have something.
    common.kv_target = lost.kv_target;
    common.kv_worker = lost.kv_worker;
  }
  replace(generation, lost, std::move(common), false, now);
  if (goes_on) ask_leaving(lost.choices);
  maybe_done();
}

void SessionMachine::give_up_placing(const Attempt& attempt, const schema::Refusal& why,
                                     TimePoint now) {
  const auto seconds = static_cast<int64_t>(to_seconds(now - attempt.unplaced_since));
  schema::Refusal last = why;
  last.message += "; given up after " + std::to_string(seconds) + " s";
  if (attempt.losses > 0) {
    last.message += ", after " + std::to_string(attempt.losses) +
                    " had failed the request since its last token";
  }
  refuse(last);
}

void SessionMachine::give_up(const schema::Refusal& why) {
  schema::Refusal last = why;
  last.message += "; given up: " + std::to_string(limits::placement_attempts_max) +
                  " workers in a row failed the request before its next token";
  refuse(last);
}

/// Its target leaves, but lives for a while yet, and has its keys and values.
void SessionMachine::hand_over(uint32_t generation, TimePoint now) {
  Attempt& leaving = attempts_.at(generation);
  if (leaving.leaves) return;
  leaving.leaves = true;
  if (leaving.losses_with_it() >= limits::placement_attempts_max && !target_goes_on(leaving)) {
    return give_up(unavailable("the worker is leaving"));
  }
  const bool has_blocks = leaving.delivered || !leaving.kv_target;
  Attempt common;
  common.kv_target = has_blocks ? leaving.target : leaving.kv_target;
  common.kv_worker = has_blocks ? leaving.worker : leaving.kv_worker;
  replace(generation, leaving, std::move(common), true, now);
}

void SessionMachine::replace(uint32_t generation, const Attempt& lost, Attempt common, bool at_once,
                             TimePoint now) {
  common.losses = target_goes_on(lost) ? std::max(lost.losses, 1u) : lost.losses_with_it();
  common.avoid = lost.avoid;
  common.avoid.push_back(lost.worker);
  common.replaces = generation;
  for (AttemptChoices& choices : plan_attempts(progress_, lost.choices)) {
    Attempt begun = common;
    begun.choices = std::move(choices);
    begin(std::move(begun), at_once, now);
  }
}

bool SessionMachine::has_successor(uint32_t generation, uint32_t choice, Phase reached) const {
  return std::any_of(attempts_.upper_bound(generation), attempts_.end(), [&](const auto& entry) {
    return entry.second.phase >= reached && entry.second.computes(choice);
  });
}

/// A younger attempt computes it, or did.
bool SessionMachine::is_taken_over(uint32_t generation, uint32_t choice) const {
  return progress_.choices[choice].source > generation ||
         has_successor(generation, choice, Phase::streaming);
}

/// Where drafts have a say, what a younger attempt was given must stay the end of what is delivered
/// until it is known whether that one goes on: it would go on with other tokens.
bool SessionMachine::is_heard(uint32_t generation, uint32_t choice) const {
  if (is_taken_over(generation, choice)) return false;
  return !verifies_by_rejection(*request_) || !has_successor(generation, choice, Phase::submitted);
}

/// What of these was not heard meanwhile.
void SessionMachine::ask_leaving(const AttemptChoices& choices) {
  for (auto& entry : attempts_) {
    Attempt& attempt = entry.second;
    const bool computes = std::any_of(choices.begin(), choices.end(),
                                      [&](uint32_t choice) { return attempt.computes(choice); });
    if (attempt.leaves && computes && !blocked_) ask_missing(entry.first, attempt);
  }
}

/// Those that leave are left once others have all that is unfinished of them.
void SessionMachine::retire_leaving() {
  const auto is_left = [&](const Attempts::value_type& entry) {
    const auto& [generation, attempt] = entry;
    if (!attempt.leaves) return false;
    bool is_replaced = false;  // Or it has finished, and says so.
    for (const uint32_t choice : attempt.choices) {
      if (progress_.choices[choice].finished) continue;
      if (!is_taken_over(generation, choice)) return false;
      is_replaced = true;
    }
    if (is_replaced) ports_.tell(attempt.target, schema::CancelRequest{key(generation)});
    return is_replaced;
  };
  std::erase_if(attempts_, is_left);
}

/// What a leaving target has finished after all needs no other one.
void SessionMachine::drop_finished() {
  std::erase_if(attempts_, [&](const auto& entry) {
    const uint32_t generation = entry.first;
    const Attempt& attempt = entry.second;
    const bool is_needless =
        std::all_of(attempt.choices.begin(), attempt.choices.end(), [&](uint32_t choice) {
          const ChoiceProgress& progress = progress_.choices[choice];
          return progress.finished && (!attempt.at_target() || progress.source != generation);
        });
    if (is_needless && attempt.at_target()) {
      ports_.tell(attempt.target, schema::CancelRequest{key(generation)});
    }
    return is_needless;
  });
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
