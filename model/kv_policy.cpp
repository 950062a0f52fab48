#include "model/kv_policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

namespace outrider::model {
namespace {

std::string decimals(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string megabytes(uint64_t bytes) {
  return std::to_string((bytes + (uint64_t{1} << 20) - 1) >> 20) + " MiB";
}

std::string budget_fault(const KvPlan& plan, const KvCandidate& candidate) {
  if (candidate.context_bytes <= plan.kv_memory_bytes) return {};
  return std::to_string(plan.context_tokens) + " tokens take " +
         megabytes(candidate.context_bytes) + ", kv-memory-mb gives " +
         megabytes(plan.kv_memory_bytes);
}

/// The gates that the figures fail; NaN fails each.
std::string quality_fault(const KvPlan& plan, const KvQuality& quality) {
  std::string text;
  const auto hold = [&](const char* name, const char* format, double value, double limit) {
    if (value <= limit) return;
    text += (text.empty() ? "" : ", ") + std::string(name) + decimals(format, value) + " over " +
            decimals("%.4g", limit);
  };
  const double delta = quality.nll - plan.baseline.nll;
  hold("NLL ", "%+.4f", delta, plan.gates.nll_delta);
  hold("PPL x", "%.4f", std::exp(delta), plan.gates.ppl_ratio);
  hold("needle KL ", "%.4f", quality.needle_kl, plan.gates.needle_kl);
  return text;
}

double milliseconds(const KvCandidate& candidate) {
  return to_ms(*candidate.step);
}

/// Why steps that differ by more than `k_step_tie` are as fast as each other.
std::string within_text(const KvPlan& plan) {
  return decimals(" within the %.0f %% that timings vary by", (plan.spread() - 1) * 100);
}

/// Reasons of those that pass, and the verdict of the best.
void give_reasons(const KvPlan& plan, std::span<KvCandidate* const> left,
                  const KvCandidate& fastest, KvCandidate& best) {
  const double least = milliseconds(fastest);
  for (KvCandidate* candidate : left) {
    const double own = milliseconds(*candidate);
    const double most = std::max(own, milliseconds(best));
    const std::string within = most > least * k_step_tie ? within_text(plan) : "";
    const bool is_slower = own > least * step_tie(plan);
    candidate->reason = is_slower
                            ? decimals("a step takes %.2f times as long", own / milliseconds(best))
                            : "as fast" + within + ", but its tokens are no smaller";
  }
  const std::string within = milliseconds(best) > least * k_step_tie ? within_text(plan) : "";
  best.verdict = KvVerdict::chosen;
  best.reason = left.size() == 1    ? "the only one that passes"
                : &best == &fastest ? "the fastest that passes"
                                    : "as fast as the fastest" + within + ", and smaller";
}

}  // namespace

std::string_view kv_verdict_name(KvVerdict verdict) {
  constexpr std::string_view names[] = {"open", "over budget", "poor", "passed", "chosen"};
  return names[static_cast<size_t>(verdict)];
}

const KvCandidate* KvPlan::chosen() const {
  const auto found = std::find_if(candidates.begin(), candidates.end(), [](const KvCandidate& c) {
    return c.verdict == KvVerdict::chosen;
  });
  return found == candidates.end() ? nullptr : &*found;
}

double KvPlan::spread() const {
  double most = 1;
  for (const KvCandidate& candidate : candidates) most = std::max(most, candidate.spread);
  return most;
}

double step_tie(const KvPlan& plan) {
  return std::max(plan.spread(), k_step_tie);
}

std::vector<kernels::KvKinds> kv_candidates(std::vector<kernels::KvKinds> wanted,
                                            uint32_t head_dim) {
  std::erase_if(wanted, [&](const kernels::KvKinds& kinds) { return !kinds.suit(head_dim); });
  const kernels::KvKinds fp16;
  if (std::find(wanted.begin(), wanted.end(), fp16) == wanted.end()) wanted.push_back(fp16);
  return wanted;
}

void judge_kv(KvPlan& plan) {
  for (KvCandidate& candidate : plan.candidates) {
    candidate.verdict = KvVerdict::over_budget;
    candidate.reason = budget_fault(plan, candidate);
    if (!candidate.reason.empty()) continue;
    candidate.verdict = KvVerdict::poor;
    if (candidate.quality) candidate.reason = quality_fault(plan, *candidate.quality);
    if (!candidate.reason.empty()) continue;
    const bool known = candidate.quality && candidate.step;
    candidate.verdict = known ? KvVerdict::passed : KvVerdict::open;
  }
}

Result<void> choose_kv(KvPlan& plan) {
  judge_kv(plan);
  std::vector<KvCandidate*> left;
  std::string poor;
  uint64_t least_bytes = UINT64_MAX;
  for (KvCandidate& candidate : plan.candidates) {
    least_bytes = std::min(least_bytes, candidate.context_bytes);
    if (candidate.verdict == KvVerdict::passed) left.push_back(&candidate);
    if (candidate.verdict == KvVerdict::poor) {
      poor += (poor.empty() ? "" : "; ") + kernels::kv_kinds_text(candidate.kinds) + ": " +
              candidate.reason;
    }
  }
  if (left.empty()) {
    const std::string budget = "kv-memory-mb: " + megabytes(plan.kv_memory_bytes) + " for " +
                               std::to_string(plan.context_tokens) + " tokens of context (ctx): ";
    const std::string why = poor.empty()
                                ? "no kind fits, the smallest needs " + megabytes(least_bytes)
                                : "the kinds that fit fail their gates (" + poor + ")";
    return fail(ErrorCode::invalid_argument, budget + why, "kv-memory-mb");
  }
  const KvCandidate* fastest = *std::min_element(
      left.begin(), left.end(), [](auto* a, auto* b) { return *a->step < *b->step; });
  const double tie = milliseconds(*fastest) * step_tie(plan);
  KvCandidate* best = nullptr;
  for (KvCandidate* candidate : left) {
    if (milliseconds(*candidate) > tie) continue;
    if (best == nullptr || candidate->token_bytes < best->token_bytes) best = candidate;
  }
  give_reasons(plan, left, *fastest, *best);
  return {};
}

}  // namespace outrider::model
