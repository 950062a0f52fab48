#include "actors/engine_loop.hpp"

#include <algorithm>

namespace outrider::actors {
namespace {

/// How soon a loop whose requests are all parked looks at their deadlines again.
constexpr auto k_stalled_poll = std::chrono::milliseconds(20);
/// Weight of the newest busy step in the speed that placement sees.
constexpr double k_speed_weight = 0.05;

}  // namespace

EngineLoop::EngineLoop(std::unique_ptr<Stepper> engine, EngineListener listener, const Clock& clock,
                       Options options)
    : engine_(std::move(engine)), listener_(std::move(listener)), clock_(clock), options_(options) {
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
    inbox_.push_back({Command::Kind::submit, key, std::move(request)});
  }
  wake_.notify_one();
  return {};
}

void EngineLoop::cancel(RequestKey key) {
  post({Command::Kind::cancel, key, {}});
}

void EngineLoop::set_parked(RequestKey key, bool parked) {
  post({parked ? Command::Kind::park : Command::Kind::unpark, key, {}});
}

void EngineLoop::forget_cached(std::optional<std::string> tenant, ResetDone done) {
  {
    const std::lock_guard lock(mutex_);
    resets_.push_back({std::move(tenant), std::move(done)});
  }
  wake_.notify_one();
}

void EngineLoop::reset_caches() {
  std::vector<CacheResetWanted> wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted.swap(resets_);
  }
  for (const CacheResetWanted& reset : wanted) reset.done(engine_->forget_cached(reset.tenant));
}

/// For commands about requests already inside: never refused, or a full inbox could not drain.
void EngineLoop::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(command));
  }
  wake_.notify_one();
}

EngineSnapshot EngineLoop::snapshot() const {
  const std::lock_guard lock(mutex_);
  EngineSnapshot snapshot = snapshot_;
  snapshot.inbox = inbox_choices_;
  return snapshot;
}

void EngineLoop::wait_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return resting_ && inbox_.empty() && resets_.empty(); });
}

void EngineLoop::run() {
  std::vector<Command> commands;
  bool stalled = false;
  while (take_inbox(commands, stalled)) {
    EngineEvents events;
    obey(commands, events);
    reset_caches();
    const bool moved = holds_requests() && step(events);
    stalled = !moved && holds_requests();
    if (!events.empty()) listener_(std::move(events));
    if (!holds_requests()) engine_->check_conservation();
  }
}

bool EngineLoop::take_inbox(std::vector<Command>& commands, bool stalled) {
  commands.clear();
  const bool resting = !holds_requests();
  const auto awake = [this] { return stop_ || arrived_ || !inbox_.empty() || !resets_.empty(); };
  std::unique_lock lock(mutex_);
  snapshot_.stats = engine_->stats();
  snapshot_.rows_per_s = static_cast<uint32_t>(std::min(rows_per_s_, 4e9));
  if (stalled) {
    wake_.wait_for(lock, k_stalled_poll, awake);
  } else if (resting) {
    resting_ = true;
    if (inbox_.empty() && resets_.empty()) idle_.notify_all();
    wake_.wait(lock, awake);
    resting_ = false;
  }
  arrived_ = false;
  commands.swap(inbox_);
  inbox_choices_ = 0;
  return !stop_;
}

void EngineLoop::obey(std::vector<Command>& commands, EngineEvents& events) {
  for (Command& command : commands) {
    switch (command.kind) {
      case Command::Kind::submit:
        if (auto taken = engine_->submit(command.key, std::move(command.request)); taken) {
          events.accepted.push_back(command.key);
        } else {
          events.rejected.emplace_back(command.key, taken.error());
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
}

/// Parked requests count: an engine with nothing to compute still owes them their deadlines.
bool EngineLoop::holds_requests() const {
  const model::EngineStats stats = engine_->stats();
  return !engine_->idle() || stats.running + stats.waiting + stats.parked > 0;
}

bool EngineLoop::step(EngineEvents& events) {
  const model::EngineStats before = engine_->stats();
  const TimePoint start = clock_.now();
  const auto updates = engine_->step();
  events.updates.assign(updates.begin(), updates.end());
  const double seconds = to_seconds(clock_.now() - start);
  const model::EngineStats after = engine_->stats();
  const uint64_t rows = after.rows - before.rows;
  if (rows > 0 && seconds > 0) {
    const double speed = static_cast<double>(rows) / seconds;
    rows_per_s_ += (rows_per_s_ == 0 ? 1.0 : k_speed_weight) * (speed - rows_per_s_);
  }
  return rows > 0 || !events.updates.empty() ||
         after.tier.queued_blocks != before.tier.queued_blocks;
}

}  // namespace outrider::actors
