#include "model/sampler.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.hpp"
#include "base/fmath.hpp"
#include "model/noise.hpp"
#include "model/row_scan.hpp"
#include "model/sampler_filters.hpp"

namespace outrider::model {
namespace {

using Candidate = SampleScratch::Candidate;

constexpr float k_forbidden = -std::numeric_limits<float>::infinity();

/// The row after penalties, bias and forbidden ids; the row itself when nothing changes it.
std::span<const float> adjust(const SampleRow& row, SampleScratch& scratch) {
  const bool penalties = TokenCounts::needed(row.params);
  if (!penalties && row.params.logit_bias.empty() && row.forbidden.empty()) return row.logits;
  scratch.logits.assign(row.logits.begin(), row.logits.end());
  const size_t vocabulary = scratch.logits.size();
  if (penalties) {
    OUTRIDER_CHECK(row.counts != nullptr);
    row.counts->penalize(row.params, scratch.logits);
  }
  for (const auto& [id, bias] : row.params.logit_bias) {
    if (id >= 0 && static_cast<size_t>(id) < vocabulary) scratch.logits[id] += bias;
  }
  for (const int32_t id : row.forbidden) {
    if (id >= 0 && static_cast<size_t>(id) < vocabulary) scratch.logits[id] = k_forbidden;
  }
  return scratch.logits;
}

int32_t gumbel_max(std::span<const Candidate> candidates, uint64_t seed, uint64_t position) {
  uint32_t group = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, 4> bits{};
  GumbelWinner winner;
  for (const Candidate& c : candidates) {
    const auto id = static_cast<uint32_t>(c.id);
    if (id / 4 != group) {
      group = id / 4;
      bits = noise_bits(seed, position, group);
    }
    winner.see(c.score, bits[id % 4], c.id);
  }
  return winner.id;
}

/// The row as it is sampled: after penalties, bias and forbidden ids.
Result<RowScan> prepare(const SampleRow& row, SampleScratch& scratch) {
  RowScan scan(row.logits, scratch.peaks);
  if (!scan.all_finite()) return logit_not_finite();
  const std::span<const float> adjusted = adjust(row, scratch);
  if (adjusted.data() != row.logits.data()) scan = RowScan(adjusted, scratch.peaks);
  if (scan.highest() > std::numeric_limits<float>::max()) {
    return fail(ErrorCode::internal, "penalties or bias made a logit overflow");
  }
  if (scan.highest() == k_forbidden) {
    return fail(ErrorCode::internal, "no token is allowed at this position");
  }
  return scan;
}

/// First number of candidates that top-p looks at; it grows until they hold the mass.
constexpr size_t k_head = 128;

/// The tokens that top-p keeps of the whole row: looks at the most probable first.
void collect_top_p(const RowScan& row, const ScoreScale& scale, float top_p,
                   std::vector<Candidate>& candidates) {
  const double mass = row.sum_of_exponentials(scale);
  for (size_t count = k_head;; count *= 8) {
    const float least = scale.score(row.reached_by(count));
    row.collect(scale, least, candidates);
    if (keep_top_p(candidates, top_p, mass) || least == k_forbidden) return;
  }
}

/// Candidates are what the filters leave, in order of id.
void keep_survivors(const SamplingParams& params, const RowScan& row, const ScoreScale& scale,
                    std::vector<Candidate>& candidates) {
  if (params.top_k > 0) {
    const auto k = static_cast<size_t>(params.top_k);
    row.collect(scale, scale.score(row.reached_by(k)), candidates);
    keep_top_k(candidates, k);
    if (params.top_p < 1.0f) keep_top_p(candidates, params.top_p, mass_of(candidates));
  } else if (params.top_p < 1.0f) {
    collect_top_p(row, scale, params.top_p, candidates);
  } else {
    const float least = params.min_p > 0.0f ? hopeless_score(params.min_p) : k_forbidden;
    row.collect(scale, least, candidates);
  }
  if (params.min_p > 0.0f) keep_min_p(candidates, params.min_p);
}

bool has_filters(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f;
}

}  // namespace

bool is_plain(const SamplingParams& params) {
  return !has_filters(params) && !TokenCounts::needed(params) && params.logit_bias.empty();
}

Error logit_not_finite() {
  return fail(ErrorCode::internal, "the model gave a logit that is not a finite number");
}

bool TokenCounts::needed(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

void TokenCounts::penalize(const SamplingParams& params, std::span<float> logits) const {
  // Each token's logit is changed on its own, so the order of the map does not matter.
  for (const auto& [id, count] : counts_) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float value = logits[static_cast<size_t>(id)];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    if (count > 0) {
      value -= params.frequency_penalty * static_cast<float>(count);
      value -= params.presence_penalty;
    }
    logits[static_cast<size_t>(id)] = value;
  }
}

Result<int32_t> sample(const SampleRow& row, SampleScratch& scratch) {
  const auto scan = prepare(row, scratch);
  if (!scan) return scan.error();
  if (!(row.params.temperature > 0.0f)) return scan->argmax();
  const ScoreScale scale = {scan->highest(), row.params.temperature};
  if (!has_filters(row.params)) return scan->gumbel_argmax(scale, row.seed, row.position);
  keep_survivors(row.params, *scan, scale, scratch.candidates);
  return gumbel_max(scratch.candidates, row.seed, row.position);
}

Result<std::vector<Candidate>> surviving(const SampleRow& row, SampleScratch& scratch) {
  const auto scan = prepare(row, scratch);
  if (!scan) return scan.error();
  const ScoreScale scale = {scan->highest(), row.params.temperature};
  keep_survivors(row.params, *scan, scale, scratch.candidates);
  return scratch.candidates;
}

Result<TokenLogprob> token_logprob(std::span<const float> logits, int32_t id, int32_t top,
                                   SampleScratch& scratch) {
  OUTRIDER_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size(), id, logits.size());
  const RowScan row(logits, scratch.peaks);
  if (!row.all_finite()) return logit_not_finite();
  const ScoreScale scale = {.highest = row.highest()};
  const double log_sum = log_f64(row.sum_of_exponentials(scale));
  const auto logprob = [&](float logit) {
    return static_cast<float>(double{logit} - double{scale.highest} - log_sum);
  };

  TokenLogprob out;
  out.logprob = logprob(logits[static_cast<size_t>(id)]);
  out.rank = 1 + row.count_ahead(id);
  if (top > 0) {
    const auto k = static_cast<size_t>(top);
    row.collect({}, row.reached_by(k), scratch.candidates);
    keep_top_k(scratch.candidates, k);
    std::sort(scratch.candidates.begin(), scratch.candidates.end(), more_probable);
    for (const Candidate& c : scratch.candidates) out.top.emplace_back(c.id, logprob(c.score));
  }
  return out;
}

Result<TokenLogprob> choice_shares(const SampleRow& row, int32_t id, int32_t top,
                                   SampleScratch& scratch) {
  constexpr size_t k_looked_at = 256;  // the most probable; the noise of others is not drawn
  const auto scan = prepare(row, scratch);
  if (!scan) return scan.error();
  const bool draws = row.params.temperature > 0.0f;
  const ScoreScale scale = {scan->highest(), draws ? row.params.temperature : 1.0f};
  std::vector<Candidate>& candidates = scratch.candidates;
  if (draws && has_filters(row.params)) {
    keep_survivors(row.params, *scan, scale, candidates);
  } else {
    scan->collect(scale, scale.score(scan->reached_by(k_looked_at)), candidates);
  }
  if (candidates.size() > k_looked_at) keep_top_k(candidates, k_looked_at);
  const auto is_chosen = [id](const Candidate& c) { return c.id == id; };
  if (std::none_of(candidates.begin(), candidates.end(), is_chosen)) {
    candidates.push_back({scale.score(scan->logits()[static_cast<size_t>(id)]), id});
  }
  double mass = 0;
  for (Candidate& c : candidates) {
    const auto place = static_cast<uint32_t>(c.id);
    if (draws) c.score += gumbel(noise_bits(row.seed, row.position, place / 4)[place % 4]);
    mass += double{exp_f32(c.score)};
  }
  std::sort(candidates.begin(), candidates.end(), more_probable);
  const auto log_share = [log_mass = log_f64(mass)](const Candidate& c) {
    return static_cast<float>(double{c.score} - log_mass);
  };
  TokenLogprob out;
  const auto chosen = std::find_if(candidates.begin(), candidates.end(), is_chosen);
  out.logprob = log_share(*chosen);
  out.rank = static_cast<uint32_t>(chosen - candidates.begin()) + 1;
  for (const Candidate& c : candidates) {
    if (out.top.size() == static_cast<size_t>(top)) break;
    out.top.emplace_back(c.id, log_share(c));
  }
  return out;
}

}  // namespace outrider::model
