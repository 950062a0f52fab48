#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "model/decode_plan.hpp"
#include "model/step_probe.hpp"

namespace outrider::model {

/// Rows of one sequence in a step: consecutive positions, the first one behind `context` tokens.
struct StepShare {
  uint32_t rows = 0;
  uint32_t context = 0;
};

/// What steps take on this machine. A step reads the weights once whatever its rows, computes each
/// row, and reads each sequence's keys and values; so a step of many sequences is predicted as the
/// step of all its rows without context, plus what the context of each costs.
struct StepCosts {
  std::vector<uint32_t> rows;      ///< ascending, from 1
  std::vector<uint32_t> contexts;  ///< ascending, from 0
  /// [contexts][rows] of one sequence, each row sampled; never less than with fewer rows or a
  /// shorter context.
  std::vector<Duration> times;
  uint64_t prefill_row_ns = 0;     ///< One row of a long chunk, which is not sampled.
  uint64_t attention_pair_ps = 0;  ///< One such row that attends to one earlier token.
  uint32_t local_window = 0;       ///< Of the engine: tokens that a row attends to; 0: all.

  /// Linear between what was measured and beyond it.
  Duration step(std::span<const StepShare> shares) const;
  /// Of a prompt's rows in long chunks, the first of them behind `context` tokens.
  Duration prefill(uint32_t rows, uint32_t context) const;
  /// The two parts of `step`, in ns: all its rows without context, and the context of one share.
  double rows_ns(double rows) const;
  double context_ns(const StepShare& share) const;
};

/// Times steps on an idle engine, which this warms up as well. Contexts that the engine cannot hold
/// are left out; takes about half a second for a small model, 2 to 6 s for some billion weights.
/// The table has a point for each number of rows up to 128 and for each 64th part of a doubling
/// behind, to as many rows as a step has: what was measured, and lines between and beyond.
StepCosts measure_step_costs(StepProbe& probe, const Clock& clock);
/// The same, coarse and without contexts, in the time of a dozen tokens or two: for who answers one
/// request after another.
StepCosts measure_few_step_costs(StepProbe& probe, const Clock& clock);

/// Times prefill chunks on an idle engine: a whole step, half of it, and so on. A bucket that the
/// engine cannot hold, or that cannot be measured twice within some seconds, is left out.
ChunkCosts measure_chunk_costs(StepProbe& probe, const Clock& clock);

}  // namespace outrider::model
