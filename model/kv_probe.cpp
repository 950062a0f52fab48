#include "model/kv_probe.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/block_id.hpp"
#include "model/engine.hpp"
#include "model/kv_probe_text.hpp"
#include "model/transformer.hpp"

namespace outrider::model {
namespace {

/// Raised when a probe measures something else.
constexpr std::string_view k_plan_format = "outrider kv plan 2";

/// Candidates are timed in turns, so that a disturbance hits more than one.
constexpr int k_rounds = 3;
constexpr int k_steps = 2;

uint64_t pool_bytes(const kernels::KvGeometry& geometry, uint64_t tokens) {
  const uint64_t blocks = (tokens + geometry.block_tokens - 1) / geometry.block_tokens;
  return (blocks + 1) * geometry.block_bytes();  // as the engine counts: one more stays zero
}

/// The context that candidates must hold: what was asked for, else the model's own, or where none
/// holds that as much of it as each does, for the engine then cuts it to what the chosen one holds.
uint64_t planned_context(const LoadedModel& model, const KvPlanRequest& request) {
  if (request.context_tokens != 0) return request.context_tokens;
  const uint64_t whole = model.config.context_length;
  uint64_t held_by_each = whole;
  for (const auto& kinds : kv_candidates(request.candidates, model.config.head_dim)) {
    const auto geometry = kv_geometry(model.config, request.block_tokens, kinds);
    if (pool_bytes(geometry, whole) <= request.kv_memory_bytes) return whole;
    const uint64_t blocks = request.kv_memory_bytes / geometry.block_bytes();
    held_by_each =
        std::min(held_by_each, (std::max(blocks, uint64_t{1}) - 1) * geometry.block_tokens);
  }
  return held_by_each == 0 ? whole : held_by_each;
}

KvPlan empty_plan(const LoadedModel& model, const KvPlanRequest& request) {
  KvPlan plan;
  plan.context_tokens = planned_context(model, request);
  plan.kv_memory_bytes = request.kv_memory_bytes;
  plan.depth = static_cast<uint32_t>(std::min<uint64_t>(plan.context_tokens, k_kv_depth_max)) - 1;
  plan.gates = request.gates;
  for (const auto& kinds : kv_candidates(request.candidates, model.config.head_dim)) {
    const auto geometry = kv_geometry(model.config, request.block_tokens, kinds);
    KvCandidate& candidate = plan.candidates.emplace_back();
    candidate.kinds = kinds;
    candidate.token_bytes = geometry.block_bytes() / geometry.block_tokens;
    candidate.context_bytes = pool_bytes(geometry, plan.context_tokens);
  }
  return plan;
}

/// The least of some steps of an engine of its own. Longer contexts than its own are not computed.
Result<Duration> time_step(const std::shared_ptr<const LoadedModel>& model,
                           const kernels::KvKinds& kinds, const KvPlanRequest& request,
                           uint32_t depth, const Clock& clock) {
  EngineOptions options;
  options.context_tokens = depth + 1;
  options.batch_tokens = 1;
  options.sequences = 1;
  options.block_tokens = request.block_tokens;
  options.kv_kinds = kinds;
  options.local_window = request.probe.local_window;
  options.kv_memory_bytes =
      pool_bytes(kv_geometry(model->config, request.block_tokens, kinds), depth + 1);
  auto engine = Engine::create(model, options, clock);
  if (!engine) return engine.error();
  (*engine)->time_step(1, depth, 1);  // Cold caches and pages are not the machine.
  Duration least = Duration::max();
  for (int i = 0; i < k_steps; ++i) {
    least = std::min(least, (*engine)->time_step(1, depth, 1));
  }
  return least;
}

Result<void> measure_quality(const std::shared_ptr<const LoadedModel>& model,
                             const KvPlanRequest& request, const std::function<bool()>& go_on,
                             KvPlan& plan) {
  std::vector<kernels::KvKinds> kinds = {kernels::KvKinds{}};
  for (const KvCandidate& candidate : plan.candidates) {
    if (candidate.verdict == KvVerdict::open && candidate.kinds != kernels::KvKinds{}) {
      kinds.push_back(candidate.kinds);
    }
  }
  const auto measured =
      measure_kv_quality(model, kinds, request.probe, request.block_tokens, go_on);
  if (!measured) return measured.error();
  plan.baseline = measured->front();
  for (KvCandidate& candidate : plan.candidates) {
    const auto at = std::find(kinds.begin(), kinds.end(), candidate.kinds);
    if (at != kinds.end()) {
      candidate.quality = (*measured)[static_cast<size_t>(at - kinds.begin())];
    }
  }
  return {};
}

}  // namespace

Result<KvPlan> make_kv_plan(const std::shared_ptr<const LoadedModel>& model,
                            const KvPlanRequest& request, const Clock& clock,
                            const std::function<bool()>& go_on) {
  KvPlan plan = empty_plan(*model, request);
  judge_kv(plan);
  const auto is_open = [](const KvCandidate& c) { return c.verdict == KvVerdict::open; };
  if (std::any_of(plan.candidates.begin(), plan.candidates.end(), is_open)) {
    OUTRIDER_TRY(measure_quality(model, request, go_on, plan));
  }
  judge_kv(plan);
  std::vector<KvCandidate*> open;
  for (KvCandidate& candidate : plan.candidates) {
    if (is_open(candidate)) open.push_back(&candidate);
  }
  std::vector<Duration> slowest(open.size());
  for (int round = 0; round < k_rounds; ++round) {
    for (size_t i = 0; i < open.size(); ++i) {
      KvCandidate& candidate = *open[i];
      if (go_on && !go_on()) return fail(ErrorCode::cancelled, "the probe was stopped");
      const auto step = time_step(model, candidate.kinds, request, plan.depth, clock);
      if (!step) return step.error();
      candidate.step = std::min(candidate.step.value_or(*step), *step);
      slowest[i] = std::max(slowest[i], *step);
      candidate.spread = to_ms(slowest[i]) / to_ms(*candidate.step);
    }
  }
  OUTRIDER_TRY(choose_kv(plan));
  return plan;
}

Digest256 kv_plan_fingerprint(const LoadedModel& model, const KvPlanRequest& request,
                              std::string_view machine) {
  const auto text = [](const Digest256& digest) {
    return std::string_view(reinterpret_cast<const char*>(digest.data()), digest.size());
  };
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  FieldDigest digest;
  digest.field("format", k_plan_format)
      .field("weights", text(model.weights.digest))
      .field("tokenizer", text(model.tokenizer->fingerprint()))
      .field("numerics", model.ops->numerics_class())
      .field("device", model.ops->description())
      .field("machine", machine)
      .field("context", request.context_tokens)
      .field("block tokens", request.block_tokens)
      .field("gate nll", bits(request.gates.nll_delta))
      .field("gate ppl", bits(request.gates.ppl_ratio))
      .field("gate needle", bits(request.gates.needle_kl))
      .field("probe prompt", request.probe.prompt_tokens)
      .field("probe decode", request.probe.decode_tokens)
      .field("text", kv_probe_text());
  if (request.probe.local_window != 0) digest.field("window", request.probe.local_window);
  for (const KvNeedle& needle : kv_needles()) {
    digest.field("fact", needle.fact).field("question", needle.question);
    digest.field("answer", needle.answer);
  }
  KvPlan plan = empty_plan(model, request);
  judge_kv(plan);
  const uint64_t whole =
      request.context_tokens == 0 ? model.config.context_length : request.context_tokens;
  if (plan.context_tokens != whole) digest.field("context that is held", plan.context_tokens);
  for (const KvCandidate& candidate : plan.candidates) {
    const bool fits = candidate.verdict != KvVerdict::over_budget;
    digest.field(fits ? "candidate" : "too large", kernels::kv_kinds_text(candidate.kinds));
  }
  return digest.finish();
}

}  // namespace outrider::model
