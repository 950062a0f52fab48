#include "actors/engine_loop.hpp"

#include <algorithm>
#include <iterator>

#include "base/limits.hpp"
#include "base/system.hpp"

namespace outrider::actors {
namespace {

/// How soon a loop whose requests are all parked looks at their deadlines again.
constexpr auto k_stalled_poll = std::chrono::milliseconds(20);
/// Weight of the newest busy step in the speed that placement sees.
constexpr double k_speed_weight = 0.05;

}  // namespace

EngineLoop::EngineLoop(std::unique_ptr<Stepper> engine, EngineListener listener, const Clock& clock,
                       Options options)
    : engine_(std::move(engine)),
      listener_(std::move(listener)),
      clock_(clock),
      options_(std::move(options)) {
  snapshot_.stats = engine_->stats();
  engine_->on_arrival([this] {
    {
      const std::lock_guard lock(mutex_);
      arrived_ = true;
    }
    wake_.notify_one();
  });
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  engine_->on_arrival({});
}

Result<void> EngineLoop::submit(RequestKey key, GenerationRequest request) {
  {
    const std::lock_guard lock(mutex_);
    if (inbox_choices_ >= options_.inbox_choices) {
      return fail(ErrorCode::overloaded, "the engine's inbox is full");
    }
    inbox_choices_ += request.choices;
    inbox_.commands.push_back({Command::Kind::submit, key, std::move(request), clock_.now()});
  }
  wake_.notify_one();
  return {};
}

void EngineLoop::cancel(RequestKey key) {
  post({Command::Kind::cancel, key, {}, {}});
}

void EngineLoop::set_parked(RequestKey key, bool parked) {
  post({parked ? Command::Kind::park : Command::Kind::unpark, key, {}, {}});
}

void EngineLoop::forget_cached(std::optional<std::string> tenant, ResetDone done) {
  send_on([tenant = std::move(tenant), done = std::move(done)](Stepper& engine) {
    done(engine.forget_cached(tenant));
  });
}

void EngineLoop::read_cached(model::CachedQuery query, CachedDone done) {
  send_on([query = std::move(query), done = std::move(done)](Stepper& engine) {
    done(engine.read_cached(query));
  });
}

void EngineLoop::send_on(Errand errand) {
  {
    const std::lock_guard lock(mutex_);
    errands_.push_back(std::move(errand));
  }
  wake_.notify_one();
}

void EngineLoop::run_errands() {
  std::vector<Errand> errands;
  {
    const std::lock_guard lock(mutex_);
    errands.swap(errands_);
  }
  for (const Errand& errand : errands) errand(*engine_);
}

/// For commands about requests already inside: never refused, or a full inbox could not drain.
void EngineLoop::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.commands.push_back(std::move(command));
  }
  wake_.notify_one();
}

/// Nobody is woken: without a step to come there is nothing to hint at.
void EngineLoop::hint(std::vector<DraftedHint> hints) {
  const std::lock_guard lock(mutex_);
  for (DraftedHint& hint : hints) {
    const size_t branches = 1 + hint.branches.size();
    if (inbox_.hint_branches + branches > limits::hint_branches_waiting_max) {
      ++refused_.hints[static_cast<size_t>(HintOutcome::full)];
      continue;
    }
    inbox_.hint_branches += branches;
    inbox_.hints.push_back(std::move(hint));
  }
}

void EngineLoop::count_hints(HintOutcome outcome, uint64_t count) {
  const std::lock_guard lock(mutex_);
  refused_.hints[static_cast<size_t>(outcome)] += count;
}

EngineSnapshot EngineLoop::snapshot() const {
  const std::lock_guard lock(mutex_);
  EngineSnapshot snapshot = snapshot_;
  snapshot.inbox = inbox_choices_;
  for (size_t i = 0; i < refused_.hints.size(); ++i) {
    snapshot.stats.hints.hints[i] += refused_.hints[i];
  }
  return snapshot;
}

void EngineLoop::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return resting_ && inbox_.commands.empty() && errands_.empty(); });
}

void EngineLoop::run() {
  name_this_thread("engine");
  Inbox taken;
  bool stalled = false;
  while (take_inbox(taken, stalled)) {
    EngineEvents events;
    obey(taken, events);
    run_errands();
    const bool moved = holds_requests() && step(events);
    stalled = !moved && holds_requests();
    if (!events.empty()) listener_(std::move(events));
    if (!holds_requests()) engine_->check_conservation();
  }
  hand_over();
}

/// What requests that are over have left for the tier. One that is still inside will not end, and
/// what is computed for it here nobody would hear of.
void EngineLoop::hand_over() {
  const TimePoint end = clock_.now() + std::chrono::milliseconds(limits::hand_over_ms);
  while (!engine_->idle() && open_choices() == 0 && clock_.now() < end) {
    const uint64_t before = engine_->stats().tier.queued_blocks;
    engine_->step();
    if (engine_->stats().tier.queued_blocks != before || engine_->idle()) continue;
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, k_stalled_poll, [this] { return arrived_; });
    arrived_ = false;
  }
  const uint64_t left = engine_->stats().tier.waiting_blocks;
  if (left == 0 || !options_.log) return;
  options_.log->warn("stopping: the KV store did not take {} blocks any more: they are lost", left);
}

bool EngineLoop::take_inbox(Inbox& taken, bool stalled) {
  taken.commands.clear();
  taken.hints.clear();
  taken.hint_branches = 0;
  const bool resting = !holds_requests();
  if (stalled || resting) last_step_ = TimePoint{0};
  const auto awake = [this] {
    return stop_ || arrived_ || !inbox_.commands.empty() || !errands_.empty();
  };
  std::unique_lock lock(mutex_);
  snapshot_.stats = engine_->stats();
  snapshot_.step_began = TimePoint{0};
  snapshot_.rows_per_s = static_cast<uint32_t>(std::min(rows_per_s_, 4e9));
  if (stalled) {
    wake_.wait_for(lock, k_stalled_poll, awake);
  } else if (resting) {
    resting_ = true;
    if (inbox_.commands.empty() && errands_.empty()) idle_.notify_all();
    wake_.wait(lock, awake);
    resting_ = false;
  }
  arrived_ = false;
  std::swap(taken, inbox_);
  inbox_choices_ = 0;
  return !stop_;
}

void EngineLoop::obey(Inbox& taken, EngineEvents& events) {
  for (Command& command : taken.commands) {
    switch (command.kind) {
      case Command::Kind::submit:
        if (auto held = engine_->submit(command.key, std::move(command.request), command.posted);
            held) {
          events.accepted.push_back(command.key);
        } else {
          events.rejected.emplace_back(command.key, held.error());
        }
        break;
      case Command::Kind::cancel:
        engine_->cancel(command.key);
        break;
      case Command::Kind::park:
      case Command::Kind::unpark:
        engine_->set_parked(command.key, command.kind == Command::Kind::park);
        break;
    }
  }
  for (const DraftedHint& hint : taken.hints) {
    engine_->hint(hint.key, hint.choice,
                  {.base_length = hint.base_length,
                   .base_hash = hint.base_hash,
                   .branches = hint.branches,
                   .source = HintSource::draft_model});
  }
}

/// Parked requests count: an engine with nothing to compute still owes them their deadlines.
bool EngineLoop::holds_requests() const {
  return !engine_->idle() || open_choices() > 0;
}

uint32_t EngineLoop::open_choices() const {
  const model::EngineStats stats = engine_->stats();
  return stats.running + stats.waiting + stats.parked;
}

bool EngineLoop::step(EngineEvents& events) {
  const model::EngineStats before = engine_->stats();
  const TimePoint start = clock_.now();
  {
    const std::lock_guard lock(mutex_);
    snapshot_.step_began = start;
  }
  const auto updates = engine_->step();
  events.updates.assign(updates.begin(), updates.end());
  const TimePoint end = clock_.now();
  const double seconds = to_seconds(end - start);
  const model::EngineStats after = engine_->stats();
  const uint64_t rows = after.rows - before.rows;
  const uint64_t hints = after.hints.draft_tokens - before.hints.draft_tokens;
  for (const model::ChoiceUpdate& update : updates) {
    events.step.sequences += update.tokens.empty() ? 0 : 1;
  }
  events.step.tokens = static_cast<uint32_t>(after.generated_tokens - before.generated_tokens);
  events.step.decodes_only = rows == events.step.sequences + hints;
  events.step.time = end - (last_step_ == TimePoint{0} ? start : last_step_);
  events.step.hints_could_pay = after.hints_could_pay;
  last_step_ = end;
  if (rows > 0 && seconds > 0) {
    const double speed = static_cast<double>(rows) / seconds;
    rows_per_s_ += (rows_per_s_ == 0 ? 1.0 : k_speed_weight) * (speed - rows_per_s_);
  }
  return rows > 0 || !events.updates.empty() ||
         after.tier.queued_blocks != before.tier.queued_blocks ||
         after.tier.read_blocks != before.tier.read_blocks;
}

}  // namespace outrider::actors
