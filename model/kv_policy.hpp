#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "kernels/kv_kind_flags.hpp"

/// Which kinds of keys and values a model is served with, found from figures: pure, so that equal
/// figures always give the same choice. `kv_probe` measures them.
namespace outrider::model {

/// What kinds may cost against fp16. All are highest values that still pass.
struct KvGates {
  double nll_delta = 0.05;  ///< nats a token
  double ppl_ratio = 1.05;
  double needle_kl = 0.1;  ///< nats, over the answers

  friend bool operator==(const KvGates&, const KvGates&) = default;
};

/// How a model does on the probe's texts with some kinds.
struct KvQuality {
  double nll = 0;        ///< mean, nats a token
  double mean_kl = 0;    ///< KL(fp16 || these), mean over the same tokens; no gate looks at it
  double needle_kl = 0;  ///< the same over the answers that have to be found in a longer text

  friend bool operator==(const KvQuality&, const KvQuality&) = default;
};

enum class KvVerdict : uint8_t {
  open,         ///< A figure that decides is not known.
  over_budget,  ///< The KV memory does not hold the context.
  poor,         ///< Fails a gate.
  passed,       ///< But another one was better.
  chosen,
};
std::string_view kv_verdict_name(KvVerdict verdict);

struct KvCandidate {
  kernels::KvKinds kinds;
  uint64_t token_bytes = 0;    ///< keys and values of a token, all layers
  uint64_t context_bytes = 0;  ///< of a pool that holds the context
  std::optional<KvQuality> quality;
  std::optional<Duration> step;  ///< one row behind `KvPlan::depth` tokens
  double spread = 1;             ///< slowest by fastest round of timing it
  // Found from the figures:
  KvVerdict verdict = KvVerdict::open;
  std::string reason;
};

/// The candidates in the order in which they were named. fp16, the baseline that all are compared
/// with, is always one of them: the last one if it was not named.
struct KvPlan {
  uint64_t context_tokens = 0;
  uint64_t kv_memory_bytes = 0;
  uint32_t depth = 0;  ///< tokens before the row that was timed
  KvGates gates;
  KvQuality baseline;  ///< fp16's; its KLs are 0
  std::vector<KvCandidate> candidates;

  /// Null before `choose_kv`.
  const KvCandidate* chosen() const;
  /// The largest of the candidates'.
  double spread() const;
};

/// Of `wanted` those that suit the model's heads, and fp16.
std::vector<kernels::KvKinds> kv_candidates(std::vector<kernels::KvKinds> wanted,
                                            uint32_t head_dim);

/// Steps that differ by no more than this are as fast as each other.
inline constexpr double k_step_tie = 1.03;

/// The spread above which a plan was timed on a machine that did something else, too.
inline constexpr double k_noisy_spread = 1.25;

/// Nor is a gain within what the timings varied by one: the next start might find the opposite, and
/// nothing of what the store has.
double step_tie(const KvPlan& plan);

/// Sets the verdict and the reason of each candidate, as far as its figures go.
void judge_kv(KvPlan& plan);

/// Judges, then takes of the candidates that pass the fastest; of those that are as fast (within
/// `step_tie`) the one with the fewest bytes, of those the first. Fails where none is left, and
/// names the setting.
Result<void> choose_kv(KvPlan& plan);

}  // namespace outrider::model
