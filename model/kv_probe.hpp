#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/result.hpp"
#include "model/kv_policy.hpp"
#include "model/loaded_model.hpp"

/// Measures what `kv_policy` decides from: the real network over real KV pools, the same kernels
/// and sums as in serving. All figures but the times are a function of model, numerics and options.
namespace outrider::model {

struct KvProbeOptions {
  uint32_t prompt_tokens = 64;  ///< of each of four passages, which the model reads in one go
  uint32_t decode_tokens = 4;   ///< of each of three answers to what was said between them
  uint32_t local_window = 0;    ///< EngineOptions::local_window
};

struct KvPlanRequest {
  std::vector<kernels::KvKinds> candidates;  ///< see kv_candidates
  KvGates gates;
  KvProbeOptions probe;
  uint32_t context_tokens = 0;  ///< 0: the model's own
  uint64_t kv_memory_bytes = 0;
  uint32_t block_tokens = 16;
};

/// Deepest context that steps are timed at.
inline constexpr uint32_t k_kv_depth_max = 4096;

/// Budget, then quality of what fits, then speed of what passes; the plan says all of it. Takes 2 s
/// for a small model. `go_on` is asked between measurements; false: `cancelled`. Uses the model's
/// ops: no engine may run on them meanwhile.
Result<KvPlan> make_kv_plan(const std::shared_ptr<const LoadedModel>& model,
                            const KvPlanRequest& request, const Clock& clock,
                            const std::function<bool()>& go_on = {});

/// Digest of all that a plan depends on: a plan of an equal one would be measured the same. Of the
/// KV memory that is which candidates fit it.
/// `machine` names the processor.
Digest256 kv_plan_fingerprint(const LoadedModel& model, const KvPlanRequest& request,
                              std::string_view machine);

/// Of each of `kinds`, against the first.
Result<std::vector<KvQuality>> measure_kv_quality(const std::shared_ptr<const LoadedModel>& model,
                                                  const std::vector<kernels::KvKinds>& kinds,
                                                  const KvProbeOptions& options,
                                                  uint32_t block_tokens,
                                                  const std::function<bool()>& go_on = {});

}  // namespace outrider::model
