#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/request.hpp"
#include "base/result.hpp"

/// Chooses the next token of one row. Pure: the noise is a function of (seed, position, token id),
/// everything else an argument, so a row's token never depends on its batch, and drafting,
/// preemption or another worker cannot change it. All float orders are written; no libm.
namespace outrider::model {

/// How often each token occurred: what the penalties need. A pure function of prompt and output.
class TokenCounts {
 public:
  void add_prompt(int32_t id) { counts_[id]; }
  void add_output(int32_t id) { ++counts_[id]; }

  /// Applies the penalties of `params` to the row.
  void penalize(const SamplingParams& params, std::span<float> logits) const;

  /// Whether `params` look at the counts at all.
  static bool needed(const SamplingParams& params);

 private:
  std::unordered_map<int32_t, uint32_t> counts_;  ///< Output occurrences; 0: in the prompt only.
};

struct SampleRow {
  std::span<const float> logits;  ///< [vocabulary], all finite
  const SamplingParams& params;
  uint64_t seed = 0;                     ///< params.seed + choice
  uint64_t position = 0;                 ///< Index in prompt + output of the token to be chosen.
  const TokenCounts* counts = nullptr;   ///< Set where TokenCounts::needed.
  std::span<const int32_t> forbidden{};  ///< EOS and stop ids before min_tokens.
};

/// Whether a row's token depends on its logits, temperature and noise alone.
bool is_plain(const SamplingParams& params);
/// The error of such a logit.
Error logit_not_finite();

/// Memory that a caller keeps between rows; holds no state.
struct SampleScratch {
  struct Candidate {
    float score = 0;  ///< Log-probability but for a constant: (logit - highest) / temperature.
    int32_t id = 0;
  };
  std::vector<float> logits;
  std::vector<float> peaks;
  std::vector<Candidate> candidates;
};

/// Repetition penalty (prompt and output, CTRL's rule), presence and frequency penalty (output),
/// bias, forbidden ids; then temperature 0: the highest, lowest id wins a tie; else temperature,
/// top-k, top-p, min-p (each over what the one before left) and Gumbel-max. `internal` for a logit
/// that is not finite or when no token is left.
Result<int32_t> sample(const SampleRow& row, SampleScratch& scratch);

/// The tokens that survive the filters of a row with temperature > 0, unordered: what `sample`
/// draws from, with probability proportional to exp(score).
Result<std::vector<SampleScratch::Candidate>> surviving(const SampleRow& row,
                                                        SampleScratch& scratch);

/// Log-softmax of the raw row at `id`, its rank (ties by id), and the `top` best alternatives.
/// `internal` for a logit that is not finite.
Result<TokenLogprob> token_logprob(std::span<const float> logits, int32_t id, int32_t top,
                                   SampleScratch& scratch);

/// Of `id`, which `sample` chose, and of the `top` tokens that it preferred, noise included: the
/// log of exp(score + noise)'s share among the likeliest tokens, instead of a log-probability. What
/// another model's row with the same noise would choose: a draft's token is the surer, the further
/// it was ahead of the next, however probable it was; at temperature 0 that is its probability.
Result<TokenLogprob> choice_shares(const SampleRow& row, int32_t id, int32_t top,
                                   SampleScratch& scratch);

}  // namespace outrider::model
