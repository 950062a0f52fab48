#pragma once

#include <chrono>

namespace outrider {

/// Monotonic time since an arbitrary start.
using TimePoint = std::chrono::nanoseconds;
using Duration = std::chrono::nanoseconds;

/// Where time comes from. Enters by constructor, so that tests and the simulator own it.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

/// The machine's monotonic clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override {
    return std::chrono::duration_cast<TimePoint>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
};

/// Time that moves only when told. Not thread-safe.
class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{0};
};

inline double to_ms(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}
inline double to_seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace outrider
