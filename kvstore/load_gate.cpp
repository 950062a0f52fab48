#include "kvstore/load_gate.hpp"

#include <algorithm>

namespace outrider::kvstore {
namespace {

constexpr double k_weight = 0.25;  // of the newest measurement: ten loads forget a bad minute
constexpr double k_bytes_per_second_min = 1e6;
constexpr double k_seconds_max = 3600;

double mean(double old, double measured) {
  return old + k_weight * (measured - old);
}

}  // namespace

ReadSpeed after_load(ReadSpeed speed, uint64_t bytes, Duration took, Duration first) {
  speed.latency_s = std::clamp(mean(speed.latency_s, to_seconds(first)), 0.0, k_seconds_max);
  if (bytes != 0 && took.count() > 0) {
    // Times add up, rates do not: the mean is of seconds a byte.
    const double measured = to_seconds(took) / static_cast<double>(bytes);
    const double seconds_per_byte = mean(1 / speed.bytes_per_second, measured);
    speed.bytes_per_second = std::max(k_bytes_per_second_min, 1 / seconds_per_byte);
  }
  return speed;
}

Duration predicted_load(const ReadSpeed& speed, LoadSize size) {
  const double bytes = static_cast<double>(size.bytes) + static_cast<double>(size.queued_bytes);
  const double seconds = std::min(k_seconds_max, speed.latency_s + bytes / speed.bytes_per_second);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

bool worth_loading(Duration predicted, Duration recompute, double factor) {
  return static_cast<double>(predicted.count()) < factor * static_cast<double>(recompute.count());
}

}  // namespace outrider::kvstore
