#pragma once

#include <cstdint>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "model/engine.hpp"

namespace outrider::actors {

/// What placement needs to know of a machine: T(n) = row * n + pair * n^2 / 2 for a prompt of n.
struct StepCosts {
  uint64_t prefill_row_ns = 0;
  uint64_t attention_pair_ps = 0;
};

/// Solves for both from the times of two prompts. Times that noise has bent out of shape count as
/// rows alone.
StepCosts solve_step_costs(uint32_t few, Duration few_time, uint32_t many, Duration many_time);

/// Times two prompts (`tokens` at most, of any id) on an idle engine, which this warms up as well.
Result<StepCosts> measure_step_costs(model::Engine& engine, const Clock& clock, uint32_t tokens);

}  // namespace outrider::actors
