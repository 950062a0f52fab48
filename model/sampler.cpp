#include "model/sampler.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.hpp"
#include "base/fmath.hpp"
#include "model/noise.hpp"
#include "model/sampler_filters.hpp"

namespace outrider::model {
namespace {

using Candidate = SampleScratch::Candidate;

constexpr float k_forbidden = -std::numeric_limits<float>::infinity();

Error not_finite() {
  return fail(ErrorCode::internal, "the model gave a logit that is not a finite number");
}

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

/// No NaN and no +infinity; -infinity is a forbidden token.
bool none_too_high(std::span<const float> logits) {
  return std::all_of(logits.begin(), logits.end(),
                     [](float v) { return v <= std::numeric_limits<float>::max(); });
}

/// Lowest id among the highest; -1 when every token is forbidden.
int32_t argmax(std::span<const float> logits) {
  float best = k_forbidden;
  int32_t id = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      id = static_cast<int32_t>(i);
    }
  }
  return id;
}

/// score = (logit - highest) / temperature of each allowed token, in order of id.
void collect(std::span<const float> logits, float highest, float temperature,
             std::vector<Candidate>& out) {
  out.resize(logits.size());
  size_t count = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    out[count] = {(logits[i] - highest) / temperature, static_cast<int32_t>(i)};
    count += logits[i] == k_forbidden ? 0 : 1;
  }
  out.resize(count);
}

/// argmax of score + noise, lowest id wins a tie. Noise is computed only where it could win.
int32_t gumbel_max(std::span<const Candidate> candidates, uint64_t seed, uint64_t position) {
  uint32_t group = std::numeric_limits<uint32_t>::max();
  std::array<uint32_t, 4> bits{};
  float best = k_forbidden;
  int32_t best_id = -1;
  for (const Candidate& c : candidates) {
    const auto id = static_cast<uint32_t>(c.id);
    if (id / 4 != group) {
      group = id / 4;
      bits = noise_bits(seed, position, group);
    }
    if (c.score + gumbel_bound(bits[id % 4]) < best) continue;
    const float value = c.score + gumbel(bits[id % 4]);
    if (best_id < 0 || value > best || (value == best && c.id < best_id)) {
      best = value;
      best_id = c.id;
    }
  }
  return best_id;
}

struct Prepared {
  std::span<const float> logits;
  int32_t highest = -1;  ///< id
};

Result<Prepared> prepare(const SampleRow& row, SampleScratch& scratch) {
  if (!all_finite(row.logits)) return not_finite();
  Prepared out;
  out.logits = adjust(row, scratch);
  out.highest = argmax(out.logits);
  if (out.highest < 0) return fail(ErrorCode::internal, "no token is allowed at this position");
  if (out.logits.data() != row.logits.data() && !none_too_high(out.logits)) {
    return fail(ErrorCode::internal, "penalties or bias made a logit overflow");
  }
  return out;
}

void keep_survivors(const SampleRow& row, const Prepared& prepared, SampleScratch& scratch) {
  std::vector<Candidate>& candidates = scratch.candidates;
  collect(prepared.logits, prepared.logits[static_cast<size_t>(prepared.highest)],
          row.params.temperature, candidates);
  if (row.params.top_k > 0) keep_top_k(candidates, static_cast<size_t>(row.params.top_k));
  if (row.params.top_p < 1.0f) keep_top_p(candidates, row.params.top_p, scratch.weights);
  if (row.params.min_p > 0.0f) keep_min_p(candidates, row.params.min_p);
}

}  // namespace

bool all_finite(std::span<const float> values) {
  uint32_t worst = 0;
  for (const float v : values) worst = std::max(worst, std::bit_cast<uint32_t>(v) & 0x7FFFFFFFu);
  return worst < 0x7F800000u;
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
  const auto prepared = prepare(row, scratch);
  if (!prepared) return prepared.error();
  if (!(row.params.temperature > 0.0f)) return prepared->highest;
  keep_survivors(row, *prepared, scratch);
  return gumbel_max(scratch.candidates, row.seed, row.position);
}

Result<std::vector<Candidate>> surviving(const SampleRow& row, SampleScratch& scratch) {
  const auto prepared = prepare(row, scratch);
  if (!prepared) return prepared.error();
  keep_survivors(row, *prepared, scratch);
  return scratch.candidates;
}

Result<TokenLogprob> token_logprob(std::span<const float> logits, int32_t id, int32_t top,
                                   SampleScratch& scratch) {
  OUTRIDER_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size(), id, logits.size());
  if (!all_finite(logits)) return not_finite();
  const float highest = logits[static_cast<size_t>(argmax(logits))];
  scratch.weights.resize(logits.size());
  std::transform(logits.begin(), logits.end(), scratch.weights.begin(),
                 [&](float logit) { return logit - highest; });
  exp_f32_n(scratch.weights.data(), logits.size(), scratch.weights.data());
  double sum = 0;  // in order of id
  for (const float weight : scratch.weights) sum += double{weight};
  const double log_sum = log_f64(sum);
  const auto logprob = [&](float logit) {
    return static_cast<float>(double{logit} - double{highest} - log_sum);
  };

  const float own = logits[static_cast<size_t>(id)];
  TokenLogprob out;
  out.logprob = logprob(own);
  out.rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    out.rank += logits[i] > own || (logits[i] == own && static_cast<int32_t>(i) < id) ? 1 : 0;
  }
  if (top > 0) {
    collect(logits, 0.0f, 1.0f, scratch.candidates);
    keep_top_k(scratch.candidates, static_cast<size_t>(top));
    std::sort(scratch.candidates.begin(), scratch.candidates.end(), more_probable);
    for (const Candidate& c : scratch.candidates) out.top.emplace_back(c.id, logprob(c.score));
  }
  return out;
}

}  // namespace outrider::model
