#pragma once

#include <kj/async-io.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "base/result.hpp"

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
      result_.emplace(load(stop_));
      done_->fulfill();
    });
  }
  ~BackgroundLoad() {
    stop_ = true;
    thread_.join();
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
  std::thread thread_;
};

}  // namespace outrider::tools
