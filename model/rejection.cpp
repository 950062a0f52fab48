#include "model/rejection.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/fmath.hpp"
#include "model/noise.hpp"
#include "model/row_scan.hpp"
#include "model/sampler_filters.hpp"

namespace outrider::model {
namespace {

using Candidate = SampleScratch::Candidate;

/// Keep the noises of one seed and position apart: "Acpt", "Resd".
constexpr uint32_t k_acceptance = 0x41637074;
constexpr uint32_t k_residual = 0x52657364;

std::array<uint32_t, 4> bits_of(const SampleRow& row, uint32_t group, uint32_t use) {
  std::array<uint32_t, 4> counter = noise_counter(row.position, group);
  counter[3] = use;
  return philox4x32(counter, noise_key(row.seed));
}

/// Uniform in (0, 1).
double acceptance_noise(const SampleRow& row) {
  return (bits_of(row, 0, k_acceptance)[0] + 0.5) * 0x1p-32;
}

/// Drawn from the positive part of p - q; -1 where there is none.
int32_t sample_residual(const SampleRow& row, std::span<const Candidate> candidates, double mass,
                        const DraftDistribution& q) {
  GumbelWinner winner;
  bool any = false;
  auto drafted = q.entries.begin();
  for (const Candidate& c : candidates) {
    while (drafted != q.entries.end() && drafted->id < c.id) ++drafted;
    const bool known = drafted != q.entries.end() && drafted->id == c.id;
    const double drawn = known ? double{1} * drafted->weight / k_draft_weights : 0;
    const double rest = exp_f32(c.score) / mass - drawn;
    if (rest <= 0) continue;
    const auto id = static_cast<uint32_t>(c.id);
    winner.see(static_cast<float>(log_f64(rest)), bits_of(row, id / 4, k_residual)[id % 4], c.id);
    any = true;
  }
  return any ? winner.id : -1;
}

}  // namespace

DraftDistribution distribution_of(std::span<const Candidate> candidates) {
  OUTRIDER_CHECK(!candidates.empty() && candidates.size() <= k_draft_tokens_max, candidates.size());
  const double mass = mass_of(candidates);
  DraftDistribution out;
  uint32_t left = k_draft_weights;
  size_t best = 0;
  std::vector<uint32_t> weights(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double share = exp_f32(candidates[i].score) / mass * k_draft_weights;
    weights[i] = std::min(left, static_cast<uint32_t>(share));
    left -= weights[i];
    if (candidates[i].score > candidates[best].score) best = i;
  }
  weights[best] += left;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (weights[i] > 0)
      out.entries.push_back({candidates[i].id, static_cast<uint16_t>(weights[i])});
  }
  return out;
}

Result<DraftedToken> draft_token(const SampleRow& row, SampleScratch& scratch) {
  DraftedToken out;
  if (!(row.params.temperature > 0.0f)) {
    OUTRIDER_ASSIGN(out.id, sample(row, scratch));
    out.drawn_from.entries = {{out.id, k_draft_weights}};
    return out;
  }
  SamplingParams params = row.params;
  const auto most = static_cast<int32_t>(k_draft_tokens_max);
  params.top_k = params.top_k > 0 ? std::min(params.top_k, most) : most;
  std::vector<Candidate> candidates;
  OUTRIDER_ASSIGN(candidates, surviving({.logits = row.logits,
                                         .params = params,
                                         .seed = row.seed,
                                         .position = row.position,
                                         .counts = row.counts,
                                         .forbidden = row.forbidden},
                                        scratch));
  out.drawn_from = distribution_of(candidates);
  GumbelWinner winner;
  for (const DraftDistribution::Entry& entry : out.drawn_from.entries) {
    const auto id = static_cast<uint32_t>(entry.id);
    winner.see(static_cast<float>(log_f64(entry.weight)),
               noise_bits(row.seed, row.position, id / 4)[id % 4], entry.id);
  }
  out.id = winner.id;
  return out;
}

Result<int32_t> sample_or_reject(const SampleRow& row, int32_t drafted,
                                 const DraftDistribution& drawn_from, SampleScratch& scratch) {
  if (!(row.params.temperature > 0.0f)) return sample(row, scratch);
  std::vector<Candidate> candidates;
  OUTRIDER_ASSIGN(candidates, surviving(row, scratch));
  const double mass = mass_of(candidates);
  const auto at = std::find_if(candidates.begin(), candidates.end(),
                               [&](const Candidate& c) { return c.id == drafted; });
  const double p = at == candidates.end() ? 0 : exp_f32(at->score) / mass;
  if (acceptance_noise(row) * drawn_from.probability(drafted) < p) return drafted;
  const int32_t token = sample_residual(row, candidates, mass, drawn_from);
  // Nothing is left where p = q but for rounding.
  return token >= 0 ? token : sample_residual(row, candidates, mass, {});
}

}  // namespace outrider::model
