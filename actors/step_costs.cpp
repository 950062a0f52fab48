#include "actors/step_costs.hpp"

#include <algorithm>

namespace outrider::actors {
namespace {

/// Session ids of real requests are drawn at random; this one is gone before any of them comes.
constexpr uint64_t k_session = ~uint64_t{0};

Result<Duration> time_prompt(model::Engine& engine, const Clock& clock, uint32_t tokens) {
  GenerationRequest request;
  request.prompt.assign(tokens, 0);
  request.stop.max_tokens = 1;
  const TimePoint start = clock.now();
  OUTRIDER_TRY(engine.submit({k_session, tokens}, std::move(request)));
  while (!engine.idle()) engine.step();
  return clock.now() - start;
}

}  // namespace

StepCosts solve_step_costs(uint32_t few, Duration few_time, uint32_t many, Duration many_time) {
  const double per_few = static_cast<double>(few_time.count()) / few;
  const double per_many = static_cast<double>(many_time.count()) / many;
  // T(n)/n is a line in n/2: its slope is the pair, its start the row.
  const double pair = (per_many - per_few) / ((many - few) / 2.0);
  const double row = per_many - pair * many / 2.0;
  if (pair <= 0 || row <= 0) return {static_cast<uint64_t>(per_many), 0};
  return {static_cast<uint64_t>(row), static_cast<uint64_t>(pair * 1000)};
}

Result<StepCosts> measure_step_costs(model::Engine& engine, const Clock& clock, uint32_t tokens) {
  const uint32_t many = std::min(tokens, engine.context_tokens() - 1);
  const uint32_t few = many / 4;
  if (few == 0 || many == few) return StepCosts{};
  OUTRIDER_TRY(time_prompt(engine, clock, few));  // Cold caches and pages are not the machine.
  const auto few_time = time_prompt(engine, clock, few);
  if (!few_time) return few_time.error();
  const auto many_time = time_prompt(engine, clock, many);
  if (!many_time) return many_time.error();
  return solve_step_costs(few, *few_time, many, *many_time);
}

}  // namespace outrider::actors
