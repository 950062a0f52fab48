#pragma once

#include <cstdint>
#include <span>

#include "model/draft_distribution.hpp"
#include "model/sampler.hpp"

/// Verification by rejection: the second method beside `exact`. Right in distribution, not token by
/// token: what a request gets depends on what was drafted. Pure, as the sampler is. A draft draws
/// with the noise of `sample`: so a row that no hint was in time for mostly says what the draft
/// expects, and its other hints hold. Acceptance, and what replaces a rejected token, have noises
/// of their own, by seed and position, for they must not know how the draft drew.
namespace outrider::model {

struct DraftedToken {
  int32_t id = 0;
  DraftDistribution drawn_from;
};

/// A token for another to verify, of the k_draft_tokens_max most probable ones that the filters
/// leave. At temperature 0 the only one. Errors: those of `sample`.
Result<DraftedToken> draft_token(const SampleRow& row, SampleScratch& scratch);

/// The weights of candidates in order of id, no more than k_draft_tokens_max; the most probable one
/// gets what rounding leaves over.
DraftDistribution distribution_of(std::span<const SampleScratch::Candidate> candidates);

/// The token of a row for which a draft has drawn `drafted` from `drawn_from`: with probability
/// min(1, p/q) it is taken, else one is drawn from the positive part of p - q (Leviathan, Kalman
/// and Matias 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318). Over the draft's draws
/// its distribution is that of `sample`, as long as whether this row is verified at all does not
/// depend on `drafted`. At temperature 0 it is `sample`. Errors: those of `sample`.
Result<int32_t> sample_or_reject(const SampleRow& row, int32_t drafted,
                                 const DraftDistribution& drawn_from, SampleScratch& scratch);

}  // namespace outrider::model
