#include "model/draft_depth.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.hpp"

namespace outrider::model {

void choose_depths(std::span<const DraftCandidate> candidates, const StepCosts& costs,
                   uint32_t rows_max, double gain_min, DepthScratch& scratch,
                   std::vector<uint32_t>& depths) {
  depths.assign(candidates.size(), 0);
  std::vector<DepthScratch::Slot>& slots = scratch.slots;
  slots.clear();
  double contexts_ns = 0;
  for (uint32_t c = 0; c < candidates.size(); ++c) {
    contexts_ns += costs.context_ns({1, candidates[c].context});
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
  const auto decoding = static_cast<double>(candidates.size());
  const double plain_ns = contexts_ns + costs.rows_ns(decoding);
  double best_gain = decoding * std::log(gain_min);
  double gain = 0;
  size_t best = 0;
  const size_t most = std::min<size_t>(slots.size(), rows_max);
  for (size_t n = 1; n <= most; ++n) {
    const DepthScratch::Slot& slot = slots[n - 1];
    const uint32_t context = candidates[slot.candidate].context;
    contexts_ns +=
        costs.context_ns({slot.index + 2, context}) - costs.context_ns({slot.index + 1, context});
    gain += std::log1p(double{slot.gain});
    const double ns = contexts_ns + costs.rows_ns(decoding + static_cast<double>(n));
    const double net = gain - decoding * std::log(ns / plain_ns);
    if (net > best_gain) {
      best_gain = net;
      best = n;
    }
  }
  for (size_t n = 0; n < best; ++n) ++depths[slots[n].candidate];
}

bool could_pay(std::span<const DraftCandidate> candidates, const StepCosts& costs,
               uint32_t rows_max, double gain_min) {
  double contexts_ns = 0;
  size_t slots = 0;
  for (const DraftCandidate& candidate : candidates) {
    contexts_ns += costs.context_ns({1, candidate.context});
    slots += candidate.survival.size();
  }
  const auto decoding = static_cast<double>(candidates.size());
  const double enough = gain_min * decoding / (contexts_ns + costs.rows_ns(decoding));
  for (size_t n = 1; n <= std::min<size_t>(slots, rows_max); ++n) {
    const double tokens = decoding + static_cast<double>(n);
    if (tokens / (contexts_ns + costs.rows_ns(tokens)) > enough) return true;
  }
  return false;
}

}  // namespace outrider::model
