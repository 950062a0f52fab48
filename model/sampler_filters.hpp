#pragma once

#include <span>
#include <vector>

#include "model/sampler.hpp"

/// The filters between temperature and noise. Each keeps a part of the candidates that is fixed by
/// a strict total order (score, then lowest id) and leaves them in order of id.
namespace outrider::model {

/// Strict total order: higher score first, then lower id.
inline bool more_probable(const SampleScratch::Candidate& a, const SampleScratch::Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

/// The `k` most probable.
void keep_top_k(std::vector<SampleScratch::Candidate>& candidates, size_t k);

/// The smallest prefix in order of probability whose share of `mass` (the LaneSum of exp(score)
/// over all that top_p chooses from) is at least `top_p`. False if the candidates end before that.
bool keep_top_p(std::vector<SampleScratch::Candidate>& candidates, float top_p, double mass);

/// LaneSum of the candidates' exp(score).
double mass_of(std::span<const SampleScratch::Candidate> candidates);

/// Those at least `min_p` times as probable as the most probable one.
void keep_min_p(std::vector<SampleScratch::Candidate>& candidates, float min_p);

/// Whoever scores less is far from `min_p`.
float hopeless_score(float min_p);

}  // namespace outrider::model
