#include "actors/draft_duty.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace outrider::actors {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A target whose steps give `drafted` tokens with drafts, which take a while to come, and one
/// without; both kinds of steps have their time.
struct FakeTarget {
  DraftDuty duty;
  uint32_t streams = 1;
  Duration plain = milliseconds(10);
  Duration drafted = milliseconds(12);
  Duration drafted_when_ready{0};  ///< If it is another one.
  uint32_t tokens_of_drafted = 2;
  uint32_t steps_to_come = 5;
  bool could_pay = true;
  bool decodes_only = true;
  Duration stall{0};             ///< Of the next step: others have the machine.
  Duration drafted_at_times{0};  ///< What each `at_times`th step with drafts takes more.
  uint32_t at_times = 1;

  uint64_t tokens = 0;
  Duration elapsed{0};
  Duration on_for{0};
  uint32_t switches = 0;

  explicit FakeTarget(DraftDuty::Options options = {}) : duty(options) {}

  void run(Duration time) {
    for (const Duration end = elapsed + time; elapsed < end;) {
      const bool on = duty.on();
      switches += on == was_on_ ? 0 : 1;
      was_on_ = on;
      waited_ = on ? waited_ + 1 : 0;
      const bool ready = waited_ > steps_to_come;
      StepReport step{streams, streams * (ready ? tokens_of_drafted : 1), decodes_only,
                      (on ? drafted : plain) + std::exchange(stall, {}), could_pay};
      if (ready && drafted_when_ready > Duration(0)) step.time = drafted_when_ready;
      if (on && waited_ % at_times == 0) step.time += drafted_at_times;
      tokens += step.tokens;
      elapsed += step.time;
      if (on) on_for += step.time;
      duty.observe(step, ready);
    }
  }
  double rate() const { return static_cast<double>(tokens) / to_seconds(elapsed); }

 private:
  bool was_on_ = false;
  uint32_t waited_ = 0;
};

/// Share of the time that drafts were wanted in `steps`, in `promising` of each 10 of which hints
/// could pay.
double share_on(FakeTarget& target, int promising, int steps) {
  const Duration on_before = target.on_for;
  const Duration before = target.elapsed;
  for (int i = 0; i < steps; ++i) {
    target.could_pay = i % 10 < promising;
    target.run(milliseconds(1));
  }
  return to_seconds(target.on_for - on_before) / to_seconds(target.elapsed - before);
}

TEST(DraftDuty, DraftsWhereThatIsFaster) {
  FakeTarget target;
  target.run(seconds(100));
  // 2 / 0.012 = 167 tokens per second against 100.
  EXPECT_TRUE(target.duty.on());
  EXPECT_GT(target.rate(), 0.95 * 167);
}

TEST(DraftDuty, LosesLittleWhereItIsSlower) {
  for (const bool competes : {false, true}) {
    for (const int slow_ms : {22, 50, 200}) {
      FakeTarget target({.competes = competes});
      target.drafted = milliseconds(slow_ms);
      target.run(seconds(10));
      if (competes) {
        EXPECT_EQ(target.on_for, Duration(0)) << "so early nothing is risked";
      }
      target.run(seconds(990));
      EXPECT_LT(target.on_for, target.elapsed / 3);
      EXPECT_GT(target.switches, 2u) << "it must try now and then";
      EXPECT_GT(target.rate(), 0.97 * 100) << slow_ms;
    }
  }
}

TEST(DraftDuty, ATryEndsWhenNoDraftsCome) {
  FakeTarget target;
  target.steps_to_come = UINT32_MAX;
  target.run(seconds(300));
  EXPECT_FALSE(target.duty.on());
  EXPECT_GT(target.on_for, Duration(0));
  EXPECT_GT(target.rate(), 0.97 * 100);
}

TEST(DraftDuty, NoticesSoonThatDraftsComeAgainWhereWaitingForThemCostsNothing) {
  FakeTarget target;
  target.drafted = target.plain;
  target.run(seconds(10));
  ASSERT_TRUE(target.duty.on());
  target.steps_to_come = UINT32_MAX;
  target.run(seconds(120));
  target.steps_to_come = 5;
  target.run(seconds(3));
  EXPECT_TRUE(target.duty.on());
}

TEST(DraftDuty, NoticesSoonThatDraftsAreInTimeAgain) {
  FakeTarget target;
  target.drafted = milliseconds(10);
  target.run(seconds(10));
  ASSERT_TRUE(target.duty.on());
  target.tokens_of_drafted = 1;
  target.drafted = Duration(milliseconds(10)) * 103 / 100;
  target.run(seconds(120));
  EXPECT_GT(target.rate(), 0.98 * 100);
  target.tokens_of_drafted = 2;
  target.run(seconds(3));
  EXPECT_TRUE(target.duty.on());
}

TEST(DraftDuty, FindsAtOnceThatItIsSlowerThanPlainDecodingWas) {
  FakeTarget target;
  target.run(seconds(20));
  ASSERT_TRUE(target.duty.on());
  target.tokens_of_drafted = 1;
  target.run(milliseconds(1300));
  EXPECT_FALSE(target.duty.on());
}

TEST(DraftDuty, ATryCostsAShareOfTheTimeInWhichHintsCouldPay) {
  FakeTarget target;
  target.tokens_of_drafted = 1;
  uint64_t tokens = 0;
  for (int turn = 0; turn < 100; ++turn) {
    target.could_pay = turn % 2 == 0;
    const uint64_t before = target.tokens;
    target.run(seconds(5));
    if (target.could_pay) tokens += target.tokens - before;
  }
  EXPECT_GT(tokens, 0.97 * 250 * 100);
}

TEST(DraftDuty, AStalledStepOfATryDecidesNothing) {
  for (const Duration stall : {Duration(seconds(1)), Duration(seconds(10))}) {
    FakeTarget target;
    while (!target.duty.on()) target.run(milliseconds(1));
    target.run(milliseconds(100));
    target.stall = stall;
    target.run(milliseconds(1));
    target.run(seconds(3));
    EXPECT_TRUE(target.duty.on()) << to_seconds(stall) << " s";
  }
}

TEST(DraftDuty, AStalledStepOfATryThatIsBadEndsNoTries) {
  for (const uint32_t to_come : {5u, UINT32_MAX}) {
    for (const int at : {1, 2, 4, 10, 30}) {
      FakeTarget target;
      target.steps_to_come = to_come;
      target.tokens_of_drafted = 1;
      target.drafted = milliseconds(20);
      while (!target.duty.on()) target.run(milliseconds(1));
      for (int i = 1; i < at; ++i) target.run(milliseconds(1));
      target.stall = seconds(10);
      target.run(seconds(2));
      target.steps_to_come = 5;
      target.tokens_of_drafted = 3;
      target.run(seconds(60));
      EXPECT_TRUE(target.duty.on()) << "step " << at << " of it, " << to_come;
    }
  }
}

TEST(DraftDuty, WhatStallsAgainAndAgainIsWhatStepsTake) {
  struct Case {
    uint32_t at_times;
    int more_ms;
  };
  for (const auto& [at_times, more_ms] : {Case{5, 188}, {5, 88}, {10, 188}, {20, 388}}) {
    FakeTarget target;
    target.at_times = at_times;
    target.drafted_at_times = milliseconds(more_ms);
    target.run(seconds(1000));
    EXPECT_GT(target.rate(), 0.95 * 100) << "each " << at_times << "th: " << more_ms;
  }
}

TEST(DraftDuty, TriesThatWaitBeforeTheyAreSlowCostNoMoreThanOthers) {
  for (const int slow_ms : {200, 1000}) {
    FakeTarget target;
    target.steps_to_come = 40;
    while (!target.duty.on()) target.run(milliseconds(1));
    target.drafted_when_ready = milliseconds(slow_ms);
    target.drafted = milliseconds(10);
    target.run(seconds(1000));
    EXPECT_GT(target.rate(), 0.96 * 100) << slow_ms;
  }
}

TEST(DraftDuty, AStalledStepBeforeATryMakesNoDraftLookFast) {
  const auto on_for = [](Duration stall, int at) {
    FakeTarget target;
    target.drafted = milliseconds(30);
    for (int i = 0; i < at; ++i) target.run(milliseconds(1));
    target.stall = stall;
    target.run(milliseconds(1));
    const Duration before = target.on_for;
    target.run(seconds(60));
    return to_seconds(target.on_for - before);
  };
  for (const int at : {5, 20}) {
    EXPECT_LT(on_for(seconds(10), at), 1.3 * on_for(Duration(0), at)) << at;
  }
}

TEST(DraftDuty, AStalledStepOfAPlainTryMakesNoPlainDecodingLookSlow) {
  const auto on_for = [](Duration stall) {
    FakeTarget target;
    target.run(seconds(10));
    EXPECT_TRUE(target.duty.on());
    while (target.duty.on()) target.run(milliseconds(1));  // it tries to go without
    target.run(milliseconds(100));
    target.stall = stall;
    target.run(milliseconds(1));
    while (!target.duty.on()) target.run(milliseconds(1));
    target.tokens_of_drafted = 1;
    target.drafted = milliseconds(20);
    const Duration before = target.on_for;
    target.run(seconds(60));
    return to_seconds(target.on_for - before);
  };
  EXPECT_LT(on_for(seconds(10)), 1.3 * on_for(Duration(0)));
}

TEST(DraftDuty, FindsThatItNoLongerPays) {
  FakeTarget target;
  target.run(seconds(20));
  ASSERT_TRUE(target.duty.on());
  target.tokens_of_drafted = 1;
  target.run(seconds(60));
  EXPECT_LT(share_on(target, 10, 10'000), 0.3);
  target.tokens_of_drafted = 3;
  target.run(seconds(100));
  EXPECT_GT(share_on(target, 10, 10'000), 0.9);
}

TEST(DraftDuty, EachNumberOfStreamsHasItsOwnAnswer) {
  FakeTarget target;
  target.run(seconds(20));
  ASSERT_TRUE(target.duty.on());
  target.streams = 32;
  target.drafted = milliseconds(30);
  target.run(seconds(20));
  EXPECT_FALSE(target.duty.on());
  target.streams = 1;
  target.drafted = milliseconds(12);
  target.run(seconds(1));
  EXPECT_TRUE(target.duty.on()) << "as it was known before";
}

TEST(DraftDuty, NothingIsTriedWhereNoHintCouldPay) {
  FakeTarget target;
  target.could_pay = false;
  target.run(seconds(100));
  EXPECT_EQ(target.on_for, Duration(0));
  target.could_pay = true;
  target.run(seconds(3));
  ASSERT_TRUE(target.duty.on()) << "soon, where it could";
  target.could_pay = false;
  target.run(seconds(1));
  EXPECT_FALSE(target.duty.on());
  target.could_pay = true;
  target.run(seconds(1));
  EXPECT_TRUE(target.duty.on()) << "what paid has no pause before it is tried again";
}

TEST(DraftDuty, AFewStepsInWhichHintsCouldPayKeepWhatPaidButBeginNothing) {
  FakeTarget target;
  EXPECT_EQ(share_on(target, 3, 2000), 0);
  share_on(target, 8, 500);
  EXPECT_GT(share_on(target, 3, 2000), 0.9);
  share_on(target, 0, 100);
  EXPECT_EQ(share_on(target, 0, 2000), 0);
}

TEST(DraftDuty, TriesThatALoadBreaksOffCostNoMoreThanOthers) {
  FakeTarget target;
  target.drafted = milliseconds(30);
  target.steps_to_come = 40;
  for (int i = 0; i < 500; ++i) {
    target.streams = 4;
    target.run(milliseconds(500));
    target.streams = 8;
    target.run(milliseconds(500));
  }
  EXPECT_GT(target.switches, 4u);
  EXPECT_LT(target.on_for, target.elapsed / 10);
}

TEST(DraftDuty, ATryThatCannotBeMeasuredEnds) {
  FakeTarget target;
  while (!target.duty.on()) target.run(milliseconds(1));
  target.decodes_only = false;
  target.run(seconds(10));
  EXPECT_FALSE(target.duty.on());
  target.decodes_only = true;
  target.run(seconds(10));
  EXPECT_TRUE(target.duty.on());
}

TEST(DraftDuty, WhatPaidGoesOnWhereItCannotBeMeasured) {
  FakeTarget target;
  target.run(seconds(10));
  ASSERT_TRUE(target.duty.on());
  while (target.duty.on()) target.run(milliseconds(1));  // it tries to go without
  target.decodes_only = false;
  target.run(seconds(10));
  EXPECT_TRUE(target.duty.on());
}

TEST(DraftDuty, StepsWithPromptsAreNotMeasured) {
  DraftDuty duty({});
  for (int i = 0; i < 1000; ++i) duty.observe({1, 1, false, milliseconds(10), true}, false);
  EXPECT_FALSE(duty.on()) << "without a window there is nothing to compare a try with";
}

TEST(DraftDuty, AlwaysIsAlways) {
  FakeTarget target({.always = true});
  target.drafted = seconds(1);
  target.run(seconds(100));
  EXPECT_TRUE(target.duty.on());
  EXPECT_EQ(target.on_for, target.elapsed);
}

TEST(DraftDuty, RestsWhileNobodyDraftsAndGoesOnWhereItWas) {
  FakeTarget target;
  target.run(seconds(10));
  ASSERT_TRUE(target.duty.on());
  target.duty.set_available(false);
  EXPECT_FALSE(target.duty.on());
  const Duration before = target.on_for;
  target.run(seconds(100));
  EXPECT_EQ(target.on_for, before) << "there is nobody to try";
  target.duty.set_available(true);
  EXPECT_TRUE(target.duty.on()) << "it paid before";
}

TEST(DraftDuty, TriesADraftThatComesLate) {
  FakeTarget target;
  target.duty.set_available(false);
  target.run(seconds(100));
  target.duty.set_available(true);
  target.run(seconds(3));
  EXPECT_TRUE(target.duty.on());
}

}  // namespace
}  // namespace outrider::actors
