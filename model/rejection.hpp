#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/sampler.hpp"

/// Verification by rejection: the second method beside `exact`. Right in distribution, not token by
/// token: what a request gets depends on what was drafted. Pure, as the sampler is.
namespace outrider::model {

/// What a draft drew a token from: entries by ascending id, probabilities that sum to 1. What is
/// not in it was impossible.
struct DraftDistribution {
  struct Entry {
    int32_t id = 0;
    float probability = 0;
  };
  std::vector<Entry> entries;

  float probability(int32_t id) const;
};

/// Of the tokens that `surviving` leaves of a row, in order of id.
DraftDistribution distribution_of(std::span<const SampleScratch::Candidate> candidates);

/// The token of a row for which a draft has drawn `drafted` from `drawn_from`: with probability
/// min(1, p/q) it is taken, else one is drawn from the positive part of p - q (Leviathan, Kalman
/// and Matias 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318). Over the draft's draws
/// its distribution is that of `sample`, as long as whether this row is verified at all does not
/// depend on `drafted`. The noise is the row's own, by seed and position, and neither that of
/// `sample` nor the draft's. At temperature 0 it is `sample`. Errors: those of `sample`.
Result<int32_t> sample_or_reject(const SampleRow& row, int32_t drafted,
                                 const DraftDistribution& drawn_from, SampleScratch& scratch);

}  // namespace outrider::model
