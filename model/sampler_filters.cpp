#include "model/sampler_filters.hpp"

#include <algorithm>

#include "base/fmath.hpp"

namespace outrider::model {
namespace {

using Candidate = SampleScratch::Candidate;

bool lower_id(const Candidate& a, const Candidate& b) {
  return a.id < b.id;
}

/// First size of the sorted head; it grows until it holds the mass.
constexpr size_t k_head = 128;

}  // namespace

void keep_top_k(std::vector<Candidate>& candidates, size_t k) {
  if (k >= candidates.size()) return;
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(candidates.begin(), end, candidates.end(), more_probable);
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end(), lower_id);
}

void keep_top_p(std::vector<Candidate>& candidates, float top_p, std::vector<float>& weights) {
  weights.resize(candidates.size());
  std::transform(candidates.begin(), candidates.end(), weights.begin(),
                 [](const Candidate& c) { return c.score; });
  exp_f32_n(weights.data(), weights.size(), weights.data());
  double total = 0;  // in order of id
  for (const float weight : weights) total += double{weight};
  const double wanted = double{top_p} * total;
  double cumulative = 0;  // in order of probability
  size_t kept = 0;
  size_t sorted = 0;
  const auto at = [&](size_t i) { return candidates.begin() + static_cast<std::ptrdiff_t>(i); };
  while (kept < candidates.size() && (kept == 0 || cumulative < wanted)) {
    if (kept == sorted) {
      const size_t next = std::min(candidates.size(), std::max(k_head, sorted * 4));
      if (next < candidates.size()) {
        std::nth_element(at(sorted), at(next), candidates.end(), more_probable);
      }
      std::sort(at(sorted), at(next), more_probable);
      sorted = next;
    }
    cumulative += double{exp_f32(candidates[kept++].score)};
  }
  candidates.resize(kept);
  std::sort(candidates.begin(), candidates.end(), lower_id);
}

void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  // The most probable candidate has score 0, probability 1 on this scale. A score one below the
  // limit's logarithm is clear without its exponential.
  const float hopeless = log_f32(min_p) - 1.0f;
  std::erase_if(candidates,
                [&](const Candidate& c) { return c.score < hopeless || exp_f32(c.score) < min_p; });
}

}  // namespace outrider::model
