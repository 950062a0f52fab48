#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.hpp"

namespace outrider::actors {

/// Where the threads of lines run and wait: the system's, or a simulation's, in which one of them
/// runs at a time and time is virtual. Thread-safe.
class LineThreads {
 public:
  /// Joined when it goes.
  class Thread {
   public:
    virtual ~Thread() = default;
  };
  class Condition {
   public:
    virtual ~Condition() = default;
    /// Wakes all that wait.
    virtual void notify() = 0;
    /// Until it is notified, for that long at most; it may also return for no reason.
    virtual void wait_for(std::unique_lock<std::mutex>& lock, Duration most) = 0;
  };

  virtual ~LineThreads() = default;
  /// Throws std::system_error where none is to be had.
  virtual std::unique_ptr<Thread> start(std::function<void()> run) = 0;
  virtual std::unique_ptr<Condition> condition() = 0;
};

std::shared_ptr<LineThreads> system_threads();

}  // namespace outrider::actors
