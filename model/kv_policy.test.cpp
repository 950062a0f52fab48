#include "model/kv_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outrider::model {
namespace {

using kernels::KvKind;
using testing::AllOf;
using testing::HasSubstr;

KvCandidate candidate(KvKind kind, uint64_t bytes, double nll, double step_ms) {
  KvCandidate out;
  out.kinds = {kind, kind};
  out.token_bytes = bytes;
  out.context_bytes = bytes * 1000;
  out.quality = KvQuality{.nll = nll};
  out.step = Duration(static_cast<int64_t>(step_ms * 1e6));
  return out;
}

/// 1000 tokens in 30 MB; fp16 predicts at 2 nats a token.
KvPlan plan_of(std::vector<KvCandidate> candidates) {
  KvPlan plan;
  plan.context_tokens = 1000;
  plan.kv_memory_bytes = 30'000'000;
  plan.baseline = {.nll = 2};
  plan.candidates = std::move(candidates);
  return plan;
}

KvPlan chosen_from(std::vector<KvCandidate> candidates) {
  KvPlan plan = plan_of(std::move(candidates));
  const auto done = choose_kv(plan);
  EXPECT_TRUE(done.ok()) << done.error().message;
  return plan;
}

TEST(KvPolicy, TakesTheFastestThatPassesAndSaysWhyNotTheOthers) {
  const KvPlan plan = chosen_from(
      {candidate(KvKind::q8_0, 12'000, 2.001, 5.0), candidate(KvKind::q3, 5'000, 2.7, 2.0),
       candidate(KvKind::fp32, 46'000, 2.0, 1.0), candidate(KvKind::fp16, 23'000, 2.0, 6.0)});
  EXPECT_EQ(plan.chosen()->kinds.k, KvKind::q8_0);
  EXPECT_EQ(plan.candidates[0].reason, "the fastest that passes");
  EXPECT_EQ(plan.candidates[1].verdict, KvVerdict::poor);
  EXPECT_EQ(plan.candidates[1].reason, "NLL +0.7000 over 0.05, PPL x2.0138 over 1.05");
  EXPECT_EQ(plan.candidates[2].verdict, KvVerdict::over_budget);
  EXPECT_EQ(plan.candidates[2].reason, "1000 tokens take 44 MiB, kv-memory-mb gives 29 MiB");
  EXPECT_EQ(plan.candidates[3].verdict, KvVerdict::passed);
  EXPECT_EQ(plan.candidates[3].reason, "a step takes 1.20 times as long");
}

TEST(KvPolicy, OfEquallyFastOnesTakesTheSmallestAndOfThoseTheFirst) {
  const KvPlan smaller = chosen_from(
      {candidate(KvKind::fp16, 23'000, 2, 5.0), candidate(KvKind::q8_0, 12'000, 2, 5.14)});
  EXPECT_EQ(smaller.chosen()->kinds.k, KvKind::q8_0);
  EXPECT_EQ(smaller.chosen()->reason, "as fast as the fastest, and smaller");
  const KvPlan slower = chosen_from(
      {candidate(KvKind::fp16, 23'000, 2, 5.0), candidate(KvKind::q8_0, 12'000, 2, 5.16)});
  EXPECT_EQ(slower.chosen()->kinds.k, KvKind::fp16);
  const KvPlan first =
      chosen_from({candidate(KvKind::nf4, 6'000, 2, 5.1), candidate(KvKind::q4_0, 6'000, 2, 5.0)});
  EXPECT_EQ(first.chosen()->kinds.k, KvKind::nf4);
}

TEST(KvPolicy, AGainWithinWhatTheTimingsVariedByIsNone) {
  KvPlan plan =
      plan_of({candidate(KvKind::fp16, 23'000, 2, 5.0), candidate(KvKind::q8_0, 12'000, 2, 5.25)});
  plan.candidates[0].spread = 1.04;
  ASSERT_TRUE(choose_kv(plan));
  EXPECT_EQ(plan.chosen()->kinds.k, KvKind::fp16) << "5 % where they varied by 4 %";
  EXPECT_EQ(plan.chosen()->reason, "the fastest that passes");
  plan.candidates[0].spread = 1.24;
  ASSERT_TRUE(choose_kv(plan));
  EXPECT_EQ(plan.chosen()->kinds.k, KvKind::q8_0);
  EXPECT_EQ(plan.chosen()->reason,
            "as fast as the fastest within the 24 % that timings vary by, and smaller");
  EXPECT_EQ(plan.candidates[0].reason,
            "as fast within the 24 % that timings vary by, but its tokens are no smaller");
  plan.candidates[0].spread = 3;
  ASSERT_TRUE(choose_kv(plan));
  EXPECT_EQ(plan.chosen()->reason,
            "as fast as the fastest within the 200 % that timings vary by, and smaller");
  plan.candidates[1].step = Duration(15'000'001);
  ASSERT_TRUE(choose_kv(plan));
  EXPECT_EQ(plan.chosen()->kinds.k, KvKind::fp16);
}

TEST(KvPolicy, TakesFp16WhereNothingElsePasses) {
  const KvPlan plan = chosen_from(
      {candidate(KvKind::q4_0, 6'000, 2.2, 1.0), candidate(KvKind::fp16, 23'000, 2, 5.0)});
  EXPECT_EQ(plan.chosen()->kinds, kernels::KvKinds{});
  EXPECT_EQ(plan.chosen()->reason, "the only one that passes");
}

TEST(KvPolicy, EachGateRejectsAndSoDoesANaN) {
  KvPlan plan = plan_of({candidate(KvKind::q8_0, 1, 2.049, 1), candidate(KvKind::q4_0, 1, 2.03, 1),
                         candidate(KvKind::nf4, 1, std::nan(""), 1)});
  plan.candidates[1].quality->needle_kl = 0.11;
  plan.gates.nll_delta = 0.5;
  judge_kv(plan);
  EXPECT_EQ(plan.candidates[0].reason, "PPL x1.0502 over 1.05");
  EXPECT_EQ(plan.candidates[1].reason, "needle KL 0.1100 over 0.1");
  EXPECT_THAT(plan.candidates[2].reason, HasSubstr("NLL"));
  plan.gates = {.nll_delta = 0.04, .ppl_ratio = 2, .needle_kl = 0.2};
  judge_kv(plan);
  EXPECT_EQ(plan.candidates[0].reason, "NLL +0.0490 over 0.04");
  EXPECT_EQ(plan.candidates[1].verdict, KvVerdict::passed);
}

TEST(KvPolicy, WhatIsNotMeasuredStaysOpenAndIsNotChosen) {
  KvPlan plan = plan_of({candidate(KvKind::q8_0, 1, 2, 1), candidate(KvKind::fp16, 2, 2, 9)});
  plan.candidates[0].step.reset();
  ASSERT_TRUE(choose_kv(plan));
  EXPECT_EQ(plan.candidates[0].verdict, KvVerdict::open);
  EXPECT_EQ(plan.chosen()->kinds.k, KvKind::fp16);
}

TEST(KvPolicy, AMemoryThatIsTooSmallIsAnErrorThatNamesTheSetting) {
  KvPlan plan =
      plan_of({candidate(KvKind::fp16, 46'000, 2, 1), candidate(KvKind::q8_0, 32'000, 2, 1)});
  const auto none = choose_kv(plan);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().field, "kv-memory-mb");
  EXPECT_THAT(none.error().message,
              AllOf(HasSubstr("kv-memory-mb"), HasSubstr("1000 tokens"), HasSubstr("31 MiB")));
  EXPECT_EQ(plan.chosen(), nullptr);

  KvPlan poor =
      plan_of({candidate(KvKind::fp16, 46'000, 2, 1), candidate(KvKind::q3, 5'000, 3, 1)});
  const auto failing = choose_kv(poor);
  ASSERT_FALSE(failing.ok());
  EXPECT_THAT(failing.error().message, AllOf(HasSubstr("q3: NLL +1.0000"), HasSubstr("gates")));
}

TEST(KvPolicy, LeavesOutWhatTheHeadsDoNotAllowAndNeverFp16) {
  const kernels::KvKinds q4{KvKind::q4_0, KvKind::q4_0};
  const kernels::KvKinds turned{KvKind::q4_0, KvKind::q4_0, true};
  using Kinds = std::vector<kernels::KvKinds>;
  EXPECT_EQ(kv_candidates({q4, turned}, 64), (Kinds{q4, turned, {}}));
  EXPECT_EQ(kv_candidates({turned, q4}, 80), (Kinds{q4, {}}));
  EXPECT_EQ(kv_candidates({kernels::KvKinds{}, q4}, 80), (Kinds{{}, q4}));
}

TEST(KvPolicy, JudgesTheSameFiguresTheSameWay) {
  KvPlan plan = chosen_from(
      {candidate(KvKind::q8_0, 12'000, 2.001, 5.0), candidate(KvKind::fp16, 23'000, 2.0, 6.0)});
  KvPlan again = plan;
  ASSERT_TRUE(choose_kv(again));
  for (size_t i = 0; i < plan.candidates.size(); ++i) {
    EXPECT_EQ(again.candidates[i].verdict, plan.candidates[i].verdict);
    EXPECT_EQ(again.candidates[i].reason, plan.candidates[i].reason);
  }
}

}  // namespace
}  // namespace outrider::model
