#include "tests/sim/cluster/timeline.hpp"

#include <algorithm>

namespace outrider::sim::cluster {

TimePoint Timeline::next_due() const {
  TimePoint due = TimePoint::max();
  if (!events_.empty()) due = events_.begin()->first.first;
  if (!clock_.schedule().empty()) {
    due = std::min<TimePoint>(due, clock_.schedule().begin()->first.time_since_epoch());
  }
  return due;
}

bool Timeline::step(TimePoint end) {
  const TimePoint due = next_due();
  if (due > end) {
    if (end > now()) clock_.advance_time(end - now());
    return false;
  }
  clock_.advance_time(std::max(due - now(), Duration{0}));
  if (!events_.empty() && events_.begin()->first.first <= now()) {
    const auto next = events_.extract(events_.begin());
    next.mapped()();
  }
  return true;
}

}  // namespace outrider::sim::cluster
