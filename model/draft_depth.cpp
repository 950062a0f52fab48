#include "model/draft_depth.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.hpp"

namespace outrider::model {
namespace {

/// How many of the slots, best first, a step should verify.
size_t best_count(std::span<const DraftCandidate> candidates, const StepBeside& beside,
                  const StepCosts& costs, uint32_t rows_max, double gain_min,
                  std::span<const DepthScratch::Slot> slots) {
  double others_ns = beside.ns;
  for (const DraftCandidate& it : candidates) others_ns += costs.context_ns({1, it.context});
  const auto decoding = static_cast<double>(candidates.size());
  const double slowed = decoding + beside.sequences;
  const double plain_rows_ns = costs.rows_ns(decoding);
  const double plain_ns = others_ns + plain_rows_ns;
  const double least_gain = std::log(gain_min);
  double gain = 0;
  double best_net = 0;
  double least_net = 0;
  size_t best = 0;
  const size_t most = std::min<size_t>(slots.size(), rows_max);
  for (size_t n = 1; n <= most; ++n) {
    const DepthScratch::Slot& slot = slots[n - 1];
    const uint32_t context = candidates[slot.candidate].context;
    others_ns +=
        costs.context_ns({slot.index + 2, context}) - costs.context_ns({slot.index + 1, context});
    gain += std::log1p(double{slot.gain});
    if (slot.index == 0) least_net += least_gain;
    const auto added = static_cast<double>(n);
    const double rows_ns =
        std::max(costs.rows_ns(decoding + added), plain_rows_ns + added * beside.row_ns);
    const double net = gain - slowed * std::log((others_ns + rows_ns) / plain_ns);
    if (net > best_net && net > least_net) {
      best_net = net;
      best = n;
    }
  }
  return best;
}

}  // namespace

void choose_depths(std::span<const DraftCandidate> candidates, const StepBeside& beside,
                   const StepCosts& costs, uint32_t rows_max, double gain_min,
                   DepthScratch& scratch, std::vector<uint32_t>& depths) {
  depths.assign(candidates.size(), 0);
  std::vector<DepthScratch::Slot>& slots = scratch.slots;
  slots.clear();
  for (uint32_t c = 0; c < candidates.size(); ++c) {
    const std::span<const float> survival = candidates[c].survival;
    double tokens = 1;
    for (uint32_t i = 0; i < survival.size(); ++i) {
      OUTRIDER_CHECK(i == 0 || survival[i] <= survival[i - 1], c, i);
      slots.push_back({static_cast<float>(double{survival[i]} / tokens), c, i});
      tokens += double{survival[i]};
    }
  }
  if (slots.empty()) return;
  // A slot is never before its predecessor, which gives as much at least.
  std::sort(slots.begin(), slots.end(), [](const auto& a, const auto& b) {
    return std::tuple(-a.gain, a.index, a.candidate) < std::tuple(-b.gain, b.index, b.candidate);
  });
  const size_t best = best_count(candidates, beside, costs, rows_max, gain_min, slots);
  for (size_t n = 0; n < best; ++n) ++depths[slots[n].candidate];
}

bool could_pay(std::span<const DraftCandidate> candidates, const StepBeside& beside,
               const StepCosts& costs, uint32_t rows_max, double gain_min, DepthScratch& scratch) {
  std::vector<DepthScratch::Slot>& slots = scratch.slots;
  slots.clear();
  size_t deepest = 0;
  for (const DraftCandidate& it : candidates) deepest = std::max(deepest, it.survival.size());
  for (uint32_t i = 0; i < deepest && slots.size() < rows_max; ++i) {
    for (uint32_t c = 0; c < candidates.size(); ++c) {
      if (i < candidates[c].survival.size())
        slots.push_back({1.0f / static_cast<float>(i + 1), c, i});
    }
  }
  return !slots.empty() && best_count(candidates, beside, costs, rows_max, gain_min, slots) > 0;
}

}  // namespace outrider::model
