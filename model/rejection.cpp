#include "model/rejection.hpp"

#include <algorithm>

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
    const double rest = exp_f32(c.score) / mass - (known ? double{drafted->probability} : 0);
    if (rest <= 0) continue;
    const auto id = static_cast<uint32_t>(c.id);
    winner.see(static_cast<float>(log_f64(rest)), bits_of(row, id / 4, k_residual)[id % 4], c.id);
    any = true;
  }
  return any ? winner.id : -1;
}

}  // namespace

float DraftDistribution::probability(int32_t id) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), id,
                                   [](const Entry& entry, int32_t v) { return entry.id < v; });
  return at != entries.end() && at->id == id ? at->probability : 0;
}

DraftDistribution distribution_of(std::span<const Candidate> candidates) {
  DraftDistribution out;
  const double mass = mass_of(candidates);
  out.entries.reserve(candidates.size());
  for (const Candidate& c : candidates) {
    out.entries.push_back({c.id, static_cast<float>(exp_f32(c.score) / mass)});
  }
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
  return token >= 0 ? Result<int32_t>(token) : sample(row, scratch);
}

}  // namespace outrider::model
