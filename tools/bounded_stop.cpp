#include "tools/bounded_stop.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tools/command.hpp"
#include "tools/stop_signals.hpp"

namespace outrider::tools {
namespace {

/// Between two looks for a signal that nobody takes.
constexpr Duration k_look = std::chrono::seconds(1);
/// For the last line, should nobody read the log or whoever hangs hold it.
constexpr auto k_last_words = std::chrono::seconds(1);
constexpr const char* k_unheard = "hearing the signal";
constexpr const char* k_after = "ending the process";

}  // namespace

struct BoundedStop::Watch {
  struct Stage {
    const char* name = k_unheard;
    TimePoint begun{0};
  };

  Watch(Duration limit_of_all, std::shared_ptr<spdlog::logger> logger)
      : limit(limit_of_all), log(std::move(logger)) {}

  const Duration limit;
  const std::shared_ptr<spdlog::logger> log;
  const SteadyClock clock;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<TimePoint> since;  ///< When the stop began.
  std::vector<Stage> stages;

  void run() {
    std::unique_lock lock(mutex);
    RunningTime running(k_look, clock.now());
    Duration spent{0};  // of the stop
    while (true) {
      const TimePoint now = clock.now();
      const Duration ran = running.look(now);
      spent = since ? spent + ran : Duration{0};
      if (stages.empty()) look(now);
      if (since && spent >= limit) leave(now);
      changed.wait_for(lock, std::min(limit - (since ? spent : Duration{0}), k_look));
    }
  }

 private:
  /// Whether a signal waits for the thread that should take it.
  void look(TimePoint now) {
    if (!is_stop_signal_pending()) {
      since.reset();
    } else if (!since) {
      since = now;
    }
  }

  [[noreturn]] void leave(TimePoint now) {
    const Stage at = stages.empty() ? Stage{k_unheard, *since} : stages.back();
    const double hangs_s = to_seconds(now - at.begun);
    std::promise<void> said;
    try {
      std::thread([this, at, hangs_s, &said] {
        log->error("the stop hangs: {}, for {:.1f} s; given up after {:.1f} s", at.name, hangs_s,
                   to_seconds(limit));
        log->flush();
        said.set_value();
      }).detach();
      said.get_future().wait_for(k_last_words);
    } catch (const std::system_error&) {  // no thread, no words
    }
    ::_exit(k_exit_hung);
  }
};

BoundedStop::BoundedStop(Duration limit, std::shared_ptr<spdlog::logger> log)
    : watch_(std::make_shared<Watch>(limit, std::move(log))) {
  std::thread([watch = watch_] { watch->run(); }).detach();
}

void BoundedStop::enter(const char* stage) {
  const std::lock_guard lock(watch_->mutex);
  const TimePoint now = watch_->clock.now();
  if (!watch_->since) watch_->since = now;
  watch_->stages.push_back({stage, now});
  watch_->changed.notify_one();
}

void BoundedStop::end() {
  enter(k_after);
  std::string text;
  const auto& stages = watch_->stages;  // only this thread adds to them
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    text += fmt::format("{}{} {:.2f}", i == 0 ? "" : ", ", stages[i].name,
                        to_seconds(stages[i + 1].begun - stages[i].begun));
  }
  watch_->log->info("stopped in {:.2f} s: {}", to_seconds(stages.back().begun - *watch_->since),
                    text);
}

}  // namespace outrider::tools
