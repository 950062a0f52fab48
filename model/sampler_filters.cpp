#include "model/sampler_filters.hpp"

#include <algorithm>

#include "base/fmath.hpp"
#include "model/row_scan.hpp"

namespace outrider::model {
namespace {

using Candidate = SampleScratch::Candidate;

bool lower_id(const Candidate& a, const Candidate& b) {
  return a.id < b.id;
}

}  // namespace

void keep_top_k(std::vector<Candidate>& candidates, size_t k) {
  if (k >= candidates.size()) return;
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(k);
  std::nth_element(candidates.begin(), end, candidates.end(), more_probable);
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end(), lower_id);
}

bool keep_top_p(std::vector<Candidate>& candidates, float top_p, double mass) {
  const double wanted = double{top_p} * mass;
  std::sort(candidates.begin(), candidates.end(), more_probable);
  double cumulative = 0;  // in order of probability
  size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || cumulative < wanted)) {
    cumulative += double{exp_f32(candidates[kept++].score)};
  }
  candidates.resize(kept);
  std::sort(candidates.begin(), candidates.end(), lower_id);
  return cumulative >= wanted;
}

double mass_of(std::span<const Candidate> candidates) {
  LaneSum sum;
  for (const Candidate& c : candidates) sum.add(c.id, exp_f32(c.score));
  return sum.total();
}

float hopeless_score(float min_p) {
  // The most probable candidate has score 0, probability 1 on this scale. A score one below the
  // limit's logarithm is clear without its exponential.
  return log_f32(min_p) - 1.0f;
}

void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  const float hopeless = hopeless_score(min_p);
  std::erase_if(candidates,
                [&](const Candidate& c) { return c.score < hopeless || exp_f32(c.score) < min_p; });
}

}  // namespace outrider::model
