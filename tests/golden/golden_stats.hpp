#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/request.hpp"
#include "tests/golden/golden_file.hpp"

/// How far an engine is from the reference, and whether that is close enough. Pure.
namespace outrider::golden {

/// What passes. Differences that are NaN never do.
struct Limits {
  double mean_nll_relative = 0.005;
  double top1_agreement = 0.98;
  float near_tie_gap = 0.1f;  ///< Another choice is right only where the reference nearly tied.
  /// Mean |difference| over the probes' tokens, nats. fp16 keys and values cost 0.002; rotary
  /// frequencies wrong by 0.1 %, or a norm's epsilon by a factor of 10, cost 0.006.
  double logprob_mean = 0.005;
};

/// A position, or a step of a greedy path, where the engine chose another token.
struct Disagreement {
  std::string where;  ///< window or path
  uint32_t position = 0;
  int32_t expected = 0;
  int32_t actual = 0;
  float gap = 0;  ///< of the reference
};

/// One greedy path: the first `matched` of `steps` tokens are the reference's.
struct PathResult {
  std::string name;
  uint32_t steps = 0;
  uint32_t matched = 0;
  double logprob_difference_max = 0;  ///< over the matched steps
};

/// Sums over all windows and paths compared so far.
struct Report {
  uint64_t positions = 0;
  uint64_t agreements = 0;
  double reference_nll_sum = 0;
  double engine_nll_sum = 0;
  double nll_difference_max = 0;  ///< at one position
  uint64_t probe_tokens = 0;
  double probe_difference_sum = 0;
  double probe_difference_max = 0;
  std::vector<Disagreement> disagreements;       ///< of windows
  std::vector<Disagreement> path_disagreements;  ///< the first of each path that is left
  std::vector<PathResult> paths;
  std::vector<std::string> malformed;  ///< answers of the wrong length or without alternatives

  double reference_mean_nll() const;
  double engine_mean_nll() const;
  double mean_nll_relative() const;
  double agreement() const;
  double probe_difference_mean() const;
};

/// `scored[i]` is the engine's answer for ids[i + 1]: logprob of that token and at least one
/// alternative, best first. Probes compare as many alternatives as were given.
void compare_window(const Window& window, std::span<const TokenLogprob> scored, Report& report);

/// `tokens` is what the engine generated at temperature 0, with logprobs.
void compare_path(const GreedyPath& path, std::span<const TokenOut> tokens, Report& report);

/// One sentence for each limit that is broken; empty when all is well.
std::vector<std::string> violations(const Report& report, const Limits& limits);

/// The figures in one line.
std::string summary(const Report& report);

}  // namespace outrider::golden
