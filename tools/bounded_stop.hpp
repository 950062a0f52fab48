#pragma once

#include <spdlog/logger.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "base/limits.hpp"

namespace outrider::tools {

/// What of the time a process ran, by who looks at it each `step` at the latest: while it is
/// stopped (SIGSTOP, a frozen container) nobody looks, and nothing of it hangs.
class RunningTime {
 public:
  RunningTime(Duration step, TimePoint now) : step_(step), last_(now) {}
  /// Since the last look.
  Duration look(TimePoint now) {
    return std::min<Duration>(now - std::exchange(last_, now), 2 * step_);
  }

 private:
  Duration step_;
  TimePoint last_;
};

/// Of a process that serves: wherever its stop hangs, it ends within a limit. A thread that nothing
/// can hold up, and nobody waits for, watches to the very end. When time is up it logs in which
/// stage, and leaves without another step (k_exit_hung): to what is on disk that is a kill -9.
class BoundedStop {
 public:
  /// After capture_stop_signals(): a signal that nobody takes for as long is a hang, too.
  BoundedStop(Duration limit, std::shared_ptr<spdlog::logger> log);

  /// What the stop does from here on, for the log; a literal. With the first one time runs.
  void enter(const char* stage);
  /// Logs that it has stopped, and what took how long. What follows is watched still.
  void end();

 private:
  struct Watch;
  std::shared_ptr<Watch> watch_;  ///< The thread's, too.
};

/// What a stop has that may drain for so long.
constexpr Duration stop_limit(std::chrono::milliseconds drain_timeout) {
  return drain_timeout + std::chrono::milliseconds(limits::stop_grace_ms);
}

}  // namespace outrider::tools
