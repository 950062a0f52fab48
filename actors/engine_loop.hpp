#pragma once

#include <spdlog/logger.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/engine_port.hpp"
#include "base/clock.hpp"
#include "base/limits.hpp"

namespace outrider::actors {

/// Runs an engine on its own thread: drain the inbox, step, publish, for ever. Never waits for
/// anyone else; sleeps only when there is nothing to compute. Public calls are thread-safe.
class EngineLoop final : public EnginePort {
 public:
  struct Options {
    uint32_t inbox_choices = limits::engine_inbox_choices_max;
    std::shared_ptr<spdlog::logger> log;  ///< Null: silent.
  };

  EngineLoop(std::unique_ptr<Stepper> engine, EngineListener listener, const Clock& clock,
             Options options);
  EngineLoop(std::unique_ptr<Stepper> engine, EngineListener listener, const Clock& clock)
      : EngineLoop(std::move(engine), std::move(listener), clock, Options()) {}
  /// Stops after the current step. Requests still inside get no further event; if there are none,
  /// what others left for the engine's tier goes there first, for limits::hand_over_ms at most.
  /// What does not is told in the log.
  ~EngineLoop() override;

  Result<void> submit(RequestKey key, GenerationRequest request) override;
  void cancel(RequestKey key) override;
  void set_parked(RequestKey key, bool parked) override;
  void hint(std::vector<DraftedHint> hints) override;
  void count_hints(HintOutcome outcome, uint64_t count) override;
  EngineSnapshot snapshot() const override;

  /// Between two steps, as Engine::forget_cached; then `done` on the loop's thread, which must not
  /// block. A loop that stops first drops it uncalled.
  using ResetDone = std::function<void(model::CacheReset)>;
  void forget_cached(std::optional<std::string> tenant, ResetDone done);
  void read_cached(model::CachedQuery query, CachedDone done) override;

  /// Blocks until inbox and engine hold nothing.
  void wait_idle();

 private:
  struct Command {
    enum class Kind : uint8_t { submit, cancel, park, unpark };
    Kind kind;
    RequestKey key;
    GenerationRequest request;
    TimePoint posted{};  ///< A step may be long: what waits for its end waits already.
  };
  /// Between two steps, on the loop's thread.
  using Errand = std::function<void(Stepper&)>;

  void run();
  /// Commands first: a hint may be for a request that they submit.
  struct Inbox {
    std::vector<Command> commands;
    std::vector<DraftedHint> hints;
    size_t hint_branches = 0;  ///< of all, and one more for each
  };
  /// Waits for work; false when it is time to stop.
  bool take_inbox(Inbox& taken, bool stalled);
  void obey(Inbox& taken, EngineEvents& events);
  bool holds_requests() const;
  uint32_t open_choices() const;
  void hand_over();
  /// Returns whether the step did anything.
  bool step(EngineEvents& events);
  void post(Command command);
  void send_on(Errand errand);
  void run_errands();

  const std::unique_ptr<Stepper> engine_;  ///< Only the loop's thread touches it.
  const EngineListener listener_;
  const Clock& clock_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Inbox inbox_;
  std::vector<Errand> errands_;
  uint32_t inbox_choices_ = 0;
  EngineSnapshot snapshot_;
  HintCounters refused_;  ///< Hints that the engine never saw.
  bool resting_ = false;  ///< The thread holds nothing and waits.
  bool arrived_ = false;  ///< The engine has something to take in.
  bool stop_ = false;

  // Of the loop's thread only.
  double rows_per_s_ = 0;
  TimePoint last_step_{0};  ///< Its end; 0: the engine has rested since.

  std::thread thread_;  ///< Last: it uses all of the above.
};

}  // namespace outrider::actors
