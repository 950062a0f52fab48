#pragma once

#include <kj/async-io.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/result.hpp"
#include "tools/bounded_stop.hpp"
#include "tools/command.hpp"
#include "tools/stop_signals.hpp"

namespace outrider::tools {

/// Something that takes seconds (a model, an engine), made on a thread of its own, so that ports
/// answer and signals are heard meanwhile. The destructor asks it to stop and waits.
template <class T>
class BackgroundLoad {
 public:
  /// `load` looks at the flag now and then and gives up when it is set.
  explicit BackgroundLoad(std::function<Result<T>(const std::atomic<bool>& stop)> load) {
    auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
    loaded_ = kj::mv(pair.promise);
    done_ = kj::mv(pair.fulfiller);
    thread_ = std::thread([this, load = std::move(load)] {
      try {
        result_.emplace(load(stop_));
      } catch (const std::bad_alloc&) {
        result_.emplace(fail(ErrorCode::io,
                             "no memory left to load with: a smaller KV pool leaves more",
                             "kv_memory"));
      }
      ended_.set_value();
      done_->fulfill();
    });
  }
  ~BackgroundLoad() {
    stop_ = true;
    stop_.notify_all();
    thread_.join();
  }
  /// Asks it to stop. Whether it has, within so long. Once.
  bool stop_within(std::chrono::milliseconds most) {
    stop_ = true;
    stop_.notify_all();
    return ended_.get_future().wait_for(most) == std::future_status::ready;
  }
  BackgroundLoad(const BackgroundLoad&) = delete;
  BackgroundLoad& operator=(const BackgroundLoad&) = delete;

  /// Null if `stop` came first. Where both come at once it may not be: ask it again. Once, on the
  /// KJ thread.
  Result<T>* wait(kj::WaitScope& scope, kj::Promise<void> stop) {
    bool stopped = false;
    kj::mv(loaded_).exclusiveJoin(stop.then([&] { stopped = true; })).wait(scope);
    return stopped ? nullptr : &*result_;
  }

 private:
  kj::Promise<void> loaded_ = nullptr;
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> done_;
  std::optional<Result<T>> result_;
  std::atomic<bool> stop_ = false;
  std::promise<void> ended_;
  std::thread thread_;
};

/// After a signal that came first: an exit code. Measurements and kernels do not look at the flag;
/// what a load has written so far a kill leaves as well, so that nothing is waited for for long.
template <class T>
int give_up(BackgroundLoad<T>& load, BoundedStop& stopping, spdlog::logger& log) {
  constexpr std::chrono::seconds k_patience{2};
  stopping.enter("ending the load");
  log.info("asked to stop while it loads: ends within {} s", k_patience.count());
  end_at_the_next_signal(k_exit_interrupted);
  if (!load.stop_within(k_patience)) {
    log.info("stopped amid its load");
    log.flush();
    ::_exit(k_exit_interrupted);
  }
  return k_exit_interrupted;
}

}  // namespace outrider::tools
