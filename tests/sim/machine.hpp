#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.hpp"

namespace outrider::sim {

/// What a step of a model takes on its GPUs, in ms: reading the weights, and computing the rows,
/// beside it or after it.
struct StepModel {
  double weights_ms = 0;
  double row_ms = 0;
  bool overlaps = false;  ///< The longer of both counts, not their sum.

  double ms(double rows) const {
    const double compute = row_ms * rows;
    return overlaps ? std::max(weights_ms, compute) : weights_ms + compute;
  }
  Duration step(uint32_t rows) const {
    return Duration(static_cast<Duration::rep>(ms(rows) * 1e6));
  }
};

/// The pair of the design's prediction. It gives 12 ms and 1.2 ms a step, and no cost of a row.
/// These rows (140 and 2 GFLOP, at about 530 TFLOP/s on each of four GPUs and of one) are those
/// with which its co-located figures come out (docs/decisions/0010-speculation-predictions.md).
inline constexpr StepModel k_target_70b{.weights_ms = 12, .row_ms = 0.066, .overlaps = true};
inline constexpr StepModel k_draft_1b{.weights_ms = 1.2, .row_ms = 0.004};

}  // namespace outrider::sim
