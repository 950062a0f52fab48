#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "base/clock.hpp"

namespace outrider::sim {

/// Virtual time: what is to happen, in order of time, and of what happens at once in order of
/// arrival. Nothing here waits.
class EventQueue final : public Clock {
 public:
  using Event = std::function<void()>;

  TimePoint now() const override { return now_; }
  void after(Duration delay, Event event) {
    events_.push({now_ + delay, ++arrivals_, std::move(event)});
  }
  /// Moves to the next event and runs it; false: there is none.
  bool run_next() {
    if (events_.empty()) return false;
    Entry next = events_.top();
    events_.pop();
    now_ = next.when;
    next.event();
    return true;
  }

 private:
  struct Entry {
    TimePoint when;
    uint64_t arrival;
    Event event;

    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : arrival > other.arrival;
    }
  };
  TimePoint now_{};
  uint64_t arrivals_ = 0;
  std::priority_queue<Entry> events_;
};

}  // namespace outrider::sim
