#pragma once

#include <caf/detail/test_actor_clock.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.hpp"

namespace outrider::sim::cluster {

/// Virtual time of one run: the actors' own timers and what else is to happen, in order of time,
/// and of what happens at once in order of arrival. Nothing here waits. Not thread-safe.
class Timeline {
 public:
  using Event = std::function<void()>;

  explicit Timeline(caf::detail::test_actor_clock& clock) : clock_(clock) {}

  TimePoint now() const { return clock_.current_time.time_since_epoch(); }
  void after(Duration delay, Event event) {
    events_.emplace(std::pair(now() + delay, ++arrivals_), std::move(event));
  }
  /// Goes to the next instant with something due: its timers fire, one of its events runs. False:
  /// nothing is due until `end`, which it is now.
  bool step(TimePoint end);
  /// Time passes, and nobody notices before it has.
  void leap(Duration by) { clock_.current_time += by; }
  void clear() { events_.clear(); }

 private:
  TimePoint next_due() const;

  caf::detail::test_actor_clock& clock_;
  uint64_t arrivals_ = 0;
  std::map<std::pair<TimePoint, uint64_t>, Event> events_;
};

}  // namespace outrider::sim::cluster
