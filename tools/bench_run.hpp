#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/philox.hpp"
#include "model/engine.hpp"
#include "tools/bench_case.hpp"
#include "tools/bench_limits.hpp"

namespace outrider::tools {

/// One repetition of a test: its own steps, and the limits measured between and right after them.
struct BenchSample {
  BenchCase bench;     ///< at the repetition's own depth
  double seconds = 0;  ///< of all steps of the test
  uint32_t steps = 0;
  double read_seconds = 0;  ///< of a plain read of what one step reads; decode tests only
  double dot8_per_s = 0;    ///< operations
  double dot16_per_s = 0;   ///< operations
};

/// Medians over the repetitions of a test. Shares are medians of each repetition's own share.
struct BenchRow {
  BenchCase bench;
  uint32_t repetitions = 0;
  uint32_t steps = 0;
  double tokens_per_s = 0;
  std::vector<double> samples_per_s;  ///< tokens, of each repetition
  double ms_per_step = 0;
  double step_bytes = 0;        ///< 0 for a prefill
  double bytes_per_s = 0;       ///< 0 for a prefill
  double plain_read_per_s = 0;  ///< bytes; 0 for a prefill
  double read_share = 0;
  double operations_per_s = 0;
  double dot8_per_s = 0;
  double dot8_share = 0;
  double dot16_per_s = 0;
  double dot16_share = 0;

  double least_per_s() const { return std::ranges::min(samples_per_s); }
  double most_per_s() const { return std::ranges::max(samples_per_s); }
  /// Of the samples, as an estimate from them (n - 1); 0 for one.
  double deviation_per_s() const;
  /// The nearer of the two limits: reading what a step must read, or multiplying.
  bool bandwidth_bound() const { return read_share > dot16_share; }
  double limit_share() const { return std::max(read_share, dot16_share); }
  /// What to know of the shares; null: nothing.
  const char* note() const {
    return limit_share() > 1 ? "over 1: the limit was measured in a slower moment" : nullptr;
  }
};

BenchRow bench_row(const BenchCase& bench, const ModelCost& cost,
                   std::span<const BenchSample> samples);

/// Runs tests on one engine, whose KV pool holds the largest of them. One thread.
class BenchRunner {
 public:
  /// `options` without the sizes that follow from `cases`. Each of these must fit the model's
  /// context.
  static Result<std::unique_ptr<BenchRunner>> create(
      std::shared_ptr<const model::LoadedModel> model, model::EngineOptions options,
      std::span<const BenchCase> cases, uint32_t repetitions, const Clock& clock);

  /// Fills each sequence up, not measured, then measures the repetitions (see BenchLayout).
  /// `progress` hears how many rows of all are computed.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;
  Result<std::vector<BenchSample>> run(const BenchCase& bench, uint32_t repetitions,
                                       const Progress& progress = {});
  const ModelCost& cost() const { return cost_; }

 private:
  BenchRunner(std::shared_ptr<const model::LoadedModel> model, uint32_t batch_tokens,
              const Clock& clock);
  Result<void> fill(const BenchCase& bench, uint32_t repetitions);
  Result<RequestKey> submit_filled(const BenchCase& bench, uint32_t max_tokens);
  BenchSample measure(const BenchCase& bench);

  std::shared_ptr<const model::LoadedModel> model_;
  uint32_t batch_tokens_;
  const Clock& clock_;
  std::unique_ptr<model::Engine> engine_;
  MachineLimits limits_;
  ModelCost cost_;
  Random random_{1};
  uint64_t sessions_ = 0;
  std::function<void()> tell_;  ///< after each step of `run`
};

}  // namespace outrider::tools
