#pragma once

#include <cstdint>

#include "base/clock.hpp"

namespace outrider::kvstore {

/// How fast records come from disk, as measured: exponentially weighted means.
struct ReadSpeed {
  double latency_s = 0.002;         ///< of one record by itself
  double bytes_per_second = 300e6;  ///< of one load with all its records
};

/// Speed after one more load of `bytes` took `took`, its first record `first`.
ReadSpeed after_load(ReadSpeed speed, uint64_t bytes, Duration took, Duration first);

/// What is to be loaded, and what waits for the disk before it.
struct LoadSize {
  uint64_t bytes = 0;
  uint64_t queued_bytes = 0;
};

Duration predicted_load(const ReadSpeed& speed, LoadSize size);

inline constexpr double k_gate_factor = 0.8;

/// True if loading is expected to beat computing the same blocks again by enough.
bool worth_loading(Duration predicted, Duration recompute, double factor = k_gate_factor);

}  // namespace outrider::kvstore
