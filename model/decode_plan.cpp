#include "model/decode_plan.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace outrider::model {
namespace {

/// A smaller chunk has to be better by more than what one measurement differs from the next, as it
/// costs more steps.
constexpr double k_hardly_more = 1.04;

}  // namespace

uint32_t DecodePlan::rows_max(uint32_t context) const {
  const auto end = std::find_if(contexts.begin(), contexts.end(),
                                [&](uint32_t most) { return context <= most; });
  const uint32_t most = rows[static_cast<size_t>(end - contexts.begin())];
  return most == 0 ? UINT32_MAX : most;
}

std::string to_string(const DecodePlan& plan) {
  const auto size = [](uint32_t rows) { return rows == 0 ? "any" : std::to_string(rows); };
  return "chunks of " + size(plan.rows[0]) + " rows behind up to " +
         std::to_string(plan.contexts[0]) + " tokens, " + size(plan.rows[1]) + " up to " +
         std::to_string(plan.contexts[1]) + ", " + size(plan.rows[2]) + " above";
}

std::array<uint32_t, 3> choose_chunks(const ChunkCosts& costs) {
  std::array<uint32_t, 3> chosen = {};
  for (size_t bucket = 0; bucket < chosen.size(); ++bucket) {
    const std::vector<Duration>& times = costs.buckets[bucket];
    if (times.empty()) {
      chosen[bucket] = bucket == 0 ? 0 : chosen[bucket - 1];
      continue;
    }
    OUTRIDER_CHECK(times.size() == costs.rows.size(), times.size(), costs.rows.size());
    const auto of_a_row = [&](size_t i) {
      return static_cast<double>(times[i].count()) / costs.rows[i];
    };
    double least = of_a_row(0);
    for (size_t i = 1; i < times.size(); ++i) least = std::min(least, of_a_row(i));
    size_t best = times.size() - 1;
    while (of_a_row(best) > least * k_hardly_more) --best;
    chosen[bucket] = best == times.size() - 1 ? 0 : costs.rows[best];
  }
  return chosen;
}

}  // namespace outrider::model
