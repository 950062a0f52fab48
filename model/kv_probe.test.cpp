#include "model/kv_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/engine_world.test.hpp"

namespace outrider::model {
namespace {

using kernels::KvKind;
using kernels::KvKinds;

constexpr KvKinds k_q8{KvKind::q8_0, KvKind::q8_0};
constexpr KvKinds k_q3{KvKind::q3, KvKind::q3};

KvPlanRequest request() {
  KvPlanRequest out;
  out.candidates = {k_q8, k_q3};
  out.kv_memory_bytes = uint64_t{64} << 20;
  return out;
}

std::vector<KvQuality> measure(const std::vector<KvKinds>& kinds, uint32_t threads = 1) {
  EngineWorld::model()->ops->set_threads(threads);
  const auto quality = measure_kv_quality(EngineWorld::model(), kinds, {}, 16);
  EngineWorld::model()->ops->set_threads(1);
  OUTRIDER_CHECK(quality.ok(), quality.error().message);
  return *quality;
}

TEST(KvProbe, TheBaselineDiffersFromItselfInNothingAndOthersDo) {
  const auto quality = measure({KvKinds{}, KvKinds{}, k_q3});
  EXPECT_EQ(quality[0].mean_kl, 0);
  EXPECT_EQ(quality[0].needle_kl, 0);
  EXPECT_GT(quality[0].nll, 0);
  EXPECT_EQ(quality[1], quality[0]);
  EXPECT_GT(quality[2].mean_kl, 0);
  EXPECT_GT(quality[2].needle_kl, 0);
  EXPECT_NE(quality[2].nll, quality[0].nll);
}

TEST(KvProbe, FinerKindsLieNearer) {
  const auto quality = measure({KvKinds{}, k_q8, k_q3});
  EXPECT_LT(quality[1].mean_kl, quality[2].mean_kl);
  EXPECT_LT(quality[1].needle_kl, quality[2].needle_kl);
}

constexpr KvKinds turned(KvKind kind) {
  return {kind, kind, true};
}

TEST(KvProbe, FiguresAreTheSameWithAnyNumberOfThreads) {
  const std::vector<KvKinds> kinds = {KvKinds{}, k_q8, turned(KvKind::q8_0)};
  EXPECT_EQ(measure(kinds, 1), measure(kinds, 3));
}

TEST(KvProbe, TurnedKeysDifferOnlyByHowTheyAreRounded) {
  const auto quality =
      measure({{KvKind::fp32, KvKind::fp32}, turned(KvKind::fp32), k_q3, turned(KvKind::q3)});
  EXPECT_LT(quality[1].mean_kl, 1e-6);
  EXPECT_NE(quality[3].mean_kl, quality[2].mean_kl);
}

TEST(KvProbe, ALocalWindowIsMeasuredAsThatOfTheEngine) {
  const uint32_t longest = EngineWorld::model()->config.context_length;
  const auto nll = [](uint32_t window) {
    KvProbeOptions options;
    options.local_window = window;
    return measure_kv_quality(EngineWorld::model(), std::vector{KvKinds{}}, options, 16)
        ->front()
        .nll;
  };
  EXPECT_EQ(nll(longest), nll(0));
  EXPECT_NE(nll(8), nll(0));
}

TEST(KvPlanMaking, MeasuresWhatFitsTimesWhatPassesAndChooses) {
  KvPlanRequest wanted = request();
  wanted.gates = {.nll_delta = 10, .ppl_ratio = 1e6, .needle_kl = 10};
  SteadyClock clock;
  const auto plan = make_kv_plan(EngineWorld::model(), wanted, clock);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->candidates.size(), 3u);
  EXPECT_EQ(plan->candidates[2].kinds, KvKinds{}) << "the baseline is always there";
  EXPECT_EQ(plan->context_tokens, EngineWorld::model()->config.context_length);
  for (const KvCandidate& candidate : plan->candidates) {
    EXPECT_TRUE(candidate.quality.has_value());
    EXPECT_TRUE(candidate.step.has_value());
    EXPECT_FALSE(candidate.reason.empty());
  }
  EXPECT_NE(plan->chosen(), nullptr);
}

TEST(KvPlanMaking, GatesThatNothingPassesLeaveFp16) {
  KvPlanRequest wanted = request();
  wanted.gates = {.nll_delta = 0, .ppl_ratio = 1, .needle_kl = 0};
  SteadyClock clock;
  const auto plan = make_kv_plan(EngineWorld::model(), wanted, clock);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->chosen()->kinds, KvKinds{});
  EXPECT_EQ(plan->candidates[0].verdict, KvVerdict::poor);
  EXPECT_FALSE(plan->candidates[0].step.has_value()) << "nobody needs to know";
}

TEST(KvPlanMaking, CountsThePoolAsTheEngineDoes) {
  KvPlanRequest wanted = request();
  wanted.context_tokens = 100;
  SteadyClock clock;
  wanted.gates = {.nll_delta = 10, .ppl_ratio = 1e6, .needle_kl = 10};
  const auto roomy = make_kv_plan(EngineWorld::model(), wanted, clock);
  ASSERT_TRUE(roomy.ok());
  for (const KvCandidate& candidate : roomy->candidates) {
    for (const uint64_t missing : {0u, 1u}) {
      EngineOptions options = EngineWorld::small();
      options.context_tokens = 100;
      options.kv_kinds = candidate.kinds;
      options.kv_memory_bytes = candidate.context_bytes - missing;
      EXPECT_EQ(Engine::create(EngineWorld::model(), options, clock).ok(), missing == 0);
    }
  }
  wanted.kv_memory_bytes = 1;
  const auto none = make_kv_plan(EngineWorld::model(), wanted, clock);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().field, "kv-memory-mb");
}

TEST(KvPlanMaking, WhereNoKindHoldsTheModelsContextItIsCut) {
  KvPlanRequest wanted = request();
  const KvPlan roomy = *make_kv_plan(EngineWorld::model(), wanted, SteadyClock());
  uint64_t least = UINT64_MAX;
  for (const KvCandidate& c : roomy.candidates) least = std::min(least, c.context_bytes);
  wanted.kv_memory_bytes = least - 1;
  const auto plan = make_kv_plan(EngineWorld::model(), wanted, SteadyClock());
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_LT(plan->context_tokens, roomy.context_tokens);
  EXPECT_GT(plan->context_tokens, 0u);
  for (const KvCandidate& c : plan->candidates) {
    EXPECT_NE(c.verdict, KvVerdict::over_budget) << kernels::kv_kinds_text(c.kinds);
  }
  const auto print = [&] { return kv_plan_fingerprint(*EngineWorld::model(), wanted, "here"); };
  const auto before = print();
  wanted.kv_memory_bytes = least / 2;
  EXPECT_NE(print(), before) << "another context";
  wanted.context_tokens = static_cast<uint32_t>(roomy.context_tokens);
  EXPECT_FALSE(make_kv_plan(EngineWorld::model(), wanted, SteadyClock()).ok())
      << "it was asked for";
}

TEST(KvPlanMaking, StopsWhenItIsTold) {
  SteadyClock clock;
  int asked = 0;
  const auto plan =
      make_kv_plan(EngineWorld::model(), request(), clock, [&] { return ++asked < 3; });
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::cancelled);
}

TEST(KvPlanFingerprint, ChangesWithAllThatAPlanDependsOn) {
  const LoadedModel& model = *EngineWorld::model();
  const KvPlanRequest base = request();
  const Digest256 own = kv_plan_fingerprint(model, base, "cpu");
  EXPECT_EQ(kv_plan_fingerprint(model, base, "cpu"), own);
  EXPECT_NE(kv_plan_fingerprint(model, base, "another"), own);
  std::vector<KvPlanRequest> others(10, base);
  others[0].candidates.pop_back();
  others[1].gates.nll_delta = 0.06;
  others[2].gates.ppl_ratio = 1.06;
  others[3].gates.needle_kl = 0.06;
  others[4].context_tokens = 7;
  others[5].kv_memory_bytes = 7;
  others[6].block_tokens = 32;
  others[7].probe.prompt_tokens = 65;
  others[8].probe.decode_tokens = 5;
  others[9].probe.local_window = 16;
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(kv_plan_fingerprint(model, others[i], "cpu"), own) << i;
  }
}

TEST(KvPlanFingerprint, KnowsOfTheKvMemoryOnlyWhichCandidatesFit) {
  const LoadedModel& model = *EngineWorld::model();
  KvPlanRequest wanted = request();
  SteadyClock clock;
  const auto plan = make_kv_plan(EngineWorld::model(), wanted, clock);
  ASSERT_TRUE(plan.ok());
  uint64_t most = 0;
  for (const KvCandidate& candidate : plan->candidates) {
    most = std::max(most, candidate.context_bytes);
  }
  const Digest256 own = kv_plan_fingerprint(model, wanted, "cpu");
  wanted.kv_memory_bytes = most;
  EXPECT_EQ(kv_plan_fingerprint(model, wanted, "cpu"), own);
  wanted.kv_memory_bytes = most - 1;
  EXPECT_NE(kv_plan_fingerprint(model, wanted, "cpu"), own);
}

}  // namespace
}  // namespace outrider::model
