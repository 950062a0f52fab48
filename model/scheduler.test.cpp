#include "model/scheduler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::model {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

SequenceView waiting(uint64_t arrival, uint32_t length) {
  return {.arrival = arrival, .length = length};
}

SequenceView running(uint64_t arrival, uint32_t length, uint32_t computed) {
  const uint32_t blocks = (computed + 15) / 16;
  return {.running = true,
          .arrival = arrival,
          .length = length,
          .computed = computed,
          .blocks = blocks,
          .exclusive_blocks = blocks};
}

constexpr StepBudget k_roomy = {.batch_tokens = 512, .sequences = 8, .blocks_free = 1000};

TEST(Scheduler, DecodeRowsComeFirstAndPrefillGetsWhatIsLeft) {
  const std::vector<SequenceView> views = {running(1, 900, 100), running(2, 50, 49),
                                           running(3, 33, 32)};
  const StepPlan plan = plan_step(views, k_roomy);
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{1, 1}, PlannedRows{2, 1}, PlannedRows{0, 510}));
  EXPECT_THAT(plan.preempt, IsEmpty());
}

TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  const std::vector<SequenceView> views = {running(1, 4000, 512), waiting(2, 20)};
  const StepPlan plan = plan_step(views, k_roomy);
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 492}, PlannedRows{1, 20}));
  EXPECT_THAT(plan.admit, ElementsAre(1));
}

TEST(Scheduler, TheFirstInOrderKeepsHalfOfTheBudgetAgainstManyShortOnes) {
  std::vector<SequenceView> views = {running(1, 4000, 512)};
  for (uint64_t i = 2; i < 20; ++i) views.push_back(waiting(i, 30));
  StepBudget budget = k_roomy;
  budget.sequences = 32;
  const StepPlan plan = plan_step(views, budget);
  ASSERT_FALSE(plan.rows.empty());
  EXPECT_EQ(plan.rows[0].sequence, 0u);
  EXPECT_GE(plan.rows[0].rows, 256u);
}

TEST(Scheduler, AChunkHasNoMoreRowsThanItsViewAllowsAndOthersGetTheRest) {
  std::vector<SequenceView> views = {running(1, 4000, 512), waiting(2, 900), running(3, 50, 49)};
  views[0].rows_max = 128;
  const StepPlan plan = plan_step(views, k_roomy);
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{2, 1}, PlannedRows{0, 128}, PlannedRows{1, 383}));
  EXPECT_THAT(plan_step(std::span(views).first(1), k_roomy).rows, ElementsAre(PlannedRows{0, 128}));
}

TEST(Scheduler, WaitingOnesAreAdmittedInOrderOfPriorityThenArrival) {
  std::vector<SequenceView> views = {waiting(1, 8), waiting(2, 8), waiting(3, 8)};
  views[2].priority = -1;
  StepBudget budget = k_roomy;
  budget.sequences = 2;
  EXPECT_THAT(plan_step(views, budget).admit, ElementsAre(2, 0));
}

TEST(Scheduler, NobodyOvertakesAWaitingOneThatLacksBlocks) {
  const std::vector<SequenceView> views = {running(1, 33, 32), waiting(2, 300), waiting(3, 8)};
  StepBudget budget = k_roomy;
  budget.blocks_free = 10;
  const StepPlan plan = plan_step(views, budget);
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1}));
  EXPECT_THAT(plan.admit, IsEmpty());
}

SequenceView wants(SequenceView view, uint64_t block) {
  view.next_block = block;
  view.joins = true;
  return view;
}

TEST(Scheduler, OneComputesABlockThatSeveralWant) {
  const std::vector<SequenceView> views = {wants(waiting(1, 100), 7), wants(waiting(2, 100), 7),
                                           wants(waiting(3, 40), 8)};
  const StepPlan plan = plan_step(views, k_roomy);
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 100}, PlannedRows{2, 40}));
  EXPECT_THAT(plan.admit, ElementsAre(0, 2));
}

TEST(Scheduler, WhoeverIsInTheMiddleOfABlockGoesOnAndIsFollowed) {
  std::vector<SequenceView> views = {wants(waiting(1, 100), 7), wants(running(2, 100, 8), 7),
                                     wants(waiting(3, 100), 7)};
  views[1].joins = false;
  const StepPlan plan = plan_step(views, k_roomy);
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 100}, PlannedRows{1, 92}));
}

TEST(Scheduler, AParkedOneLeadsNobody) {
  std::vector<SequenceView> views = {wants(running(1, 100, 16), 7), wants(waiting(2, 100), 7)};
  EXPECT_THAT(plan_step(views, k_roomy).rows, ElementsAre(PlannedRows{0, 84}));
  views[0].parked = true;
  EXPECT_THAT(plan_step(views, k_roomy).rows, ElementsAre(PlannedRows{1, 100}));
}

TEST(Scheduler, ALeaderIsServedAsTheShortestOfThoseThatWaitForIt) {
  // Many of middle length keep the long leader from the share of the short ones.
  std::vector<SequenceView> views = {running(1, 4000, 512), wants(running(2, 4000, 512), 7)};
  for (uint64_t i = 3; i < 20; ++i) views.push_back(waiting(i, 300));
  views.push_back(wants(waiting(20, 40), 7));
  StepBudget budget = k_roomy;
  budget.sequences = 32;
  const auto rows_of = [&](uint32_t sequence) {
    for (const PlannedRows& r : plan_step(views, budget).rows) {
      if (r.sequence == sequence) return r.rows;
    }
    return 0u;
  };
  EXPECT_EQ(rows_of(1), 32u);
  EXPECT_EQ(rows_of(19), 0u);
  views.back().next_block = 9;
  EXPECT_EQ(rows_of(1), 0u);
  EXPECT_EQ(rows_of(19), 32u);
}

TEST(Scheduler, AFollowerKeepsItsPlaceInTheQueueAndDisplacesNobody) {
  StepBudget budget = k_roomy;
  budget.sequences = 2;
  std::vector<SequenceView> views = {wants(running(1, 900, 16), 7), wants(waiting(2, 900), 7),
                                     waiting(3, 10)};
  EXPECT_THAT(plan_step(views, budget).admit, IsEmpty()) << "the second slot is the follower's";
  views = {wants(running(1, 900, 16), 7), running(2, 40, 39), wants(waiting(3, 900), 7)};
  views[0].priority = -2;
  views[2].priority = -1;
  EXPECT_THAT(plan_step(views, budget).preempt, IsEmpty());
}

TEST(Scheduler, AWaitingOneLacksOnlyWhatTheIndexHasNot) {
  SequenceView cached = waiting(1, 100);
  cached.computed = 96;
  cached.blocks = 6;  // Others hold them.
  StepBudget budget = k_roomy;
  budget.blocks_free = 1;
  EXPECT_THAT(plan_step(std::vector{cached}, budget).rows, ElementsAre(PlannedRows{0, 4}));
  cached.blocks = 2;  // Four are idle: taking them leaves fewer for all.
  EXPECT_THAT(plan_step(std::vector{cached}, budget).rows, IsEmpty());
  budget.blocks_free = 5;
  EXPECT_THAT(plan_step(std::vector{cached}, budget).rows, ElementsAre(PlannedRows{0, 4}));
}

TEST(Scheduler, BlocksThatAVictimSharedWithAnAdmittedOneAreNotCountedAsFree) {
  // The victim alone holds what the urgent one would share: displacing it frees nothing of that.
  SequenceView urgent = waiting(2, 100);
  urgent.priority = -1;
  urgent.computed = 96;
  urgent.blocks = 6;
  StepBudget budget = k_roomy;
  budget.sequences = 1;
  budget.blocks_free = 0;
  const StepPlan plan = plan_step(std::vector{running(1, 97, 96), urgent}, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(0));
  EXPECT_THAT(plan.rows, IsEmpty());
}

TEST(Scheduler, TheLastInOrderGivesWayWhenBlocksRunOut) {
  const std::vector<SequenceView> views = {running(1, 33, 32), running(2, 33, 32),
                                           running(3, 40, 39)};
  StepBudget budget = k_roomy;
  budget.blocks_free = 0;
  const StepPlan plan = plan_step(views, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(2));
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1}, PlannedRows{1, 1}));
}

TEST(Scheduler, AParkedOneGivesWayFirstWhateverItsOrder) {
  std::vector<SequenceView> views = {running(1, 33, 32), running(2, 33, 32), running(3, 40, 39)};
  views[0].parked = true;
  StepBudget budget = k_roomy;
  budget.blocks_free = 0;
  const StepPlan plan = plan_step(views, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(0));
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{1, 1}, PlannedRows{2, 1}));
}

TEST(Scheduler, AParkedOneGetsNoRowsAndUsesNoSlot) {
  std::vector<SequenceView> views = {running(1, 33, 32), waiting(2, 8)};
  views[0].parked = true;
  StepBudget budget = k_roomy;
  budget.sequences = 1;
  EXPECT_THAT(plan_step(views, budget).rows, ElementsAre(PlannedRows{1, 8}));
}

TEST(Scheduler, AMoreUrgentRequestTakesASlotButAnEqualOneDoesNot) {
  std::vector<SequenceView> views = {running(1, 33, 32), waiting(2, 8)};
  StepBudget budget = k_roomy;
  budget.sequences = 1;
  EXPECT_THAT(plan_step(views, budget).preempt, IsEmpty());
  views[1].priority = -1;
  const StepPlan plan = plan_step(views, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(0));
  EXPECT_THAT(plan.admit, ElementsAre(1));
}

TEST(Scheduler, NothingIsDisplacedInVain) {
  std::vector<SequenceView> views = {running(1, 33, 32), running(2, 20, 19), waiting(3, 320)};
  views[1].priority = 5;
  StepBudget budget = k_roomy;
  budget.blocks_free = 3;
  EXPECT_THAT(plan_step(views, budget).preempt, IsEmpty());
}

TEST(Scheduler, ARequestWithChoicesIsAdmittedWhenAllOfThemHaveASlot) {
  std::vector<SequenceView> views = {running(1, 33, 32), waiting(2, 8)};
  views[1].slots = 4;
  StepBudget budget = k_roomy;
  budget.sequences = 4;
  EXPECT_THAT(plan_step(views, budget).admit, IsEmpty());
  views[0].parked = true;
  views[1].slots = 9;
  EXPECT_THAT(plan_step(views, budget).admit, ElementsAre(1)) << "more than all slots are all";
}

TEST(Scheduler, ACopyOfASharedBlockCounts) {
  std::vector<SequenceView> views = {running(1, 20, 19)};
  views[0].shared_tail = true;
  StepBudget budget = k_roomy;
  budget.blocks_free = 0;
  EXPECT_THAT(plan_step(views, budget).rows, IsEmpty());
  budget.blocks_free = 1;
  EXPECT_THAT(plan_step(views, budget).rows, ElementsAre(PlannedRows{0, 1}));
}

SequenceView of_tenant(uint32_t tenant, uint64_t served, SequenceView view) {
  view.tenant = tenant;
  view.served = served;
  return view;
}

TEST(Scheduler, TheLeastServedTenantIsAdmittedFirst) {
  std::vector<SequenceView> views = {of_tenant(0, 500, waiting(1, 8)),
                                     of_tenant(1, 400, waiting(2, 8))};
  StepBudget budget = k_roomy;
  budget.sequences = 1;
  EXPECT_THAT(plan_step(views, budget).admit, ElementsAre(1));
  views[0].priority = -100;
  EXPECT_THAT(plan_step(views, budget).admit, ElementsAre(1)) << "priority ranks inside a tenant";
}

TEST(Scheduler, EquallyServedTenantsTakeTurns) {
  std::vector<SequenceView> views;
  for (uint64_t i = 0; i < 6; ++i) views.push_back(of_tenant(0, 9, waiting(i, 8)));
  for (uint64_t i = 6; i < 12; ++i) views.push_back(of_tenant(1, 9, waiting(i, 8)));
  StepBudget budget = k_roomy;
  budget.sequences = 5;
  EXPECT_THAT(plan_step(views, budget).admit, ElementsAre(0, 6, 1, 7, 2));
}

TEST(Scheduler, ATenantThatRunsNothingGetsASlotOfOneThatRunsMany) {
  std::vector<SequenceView> views = {of_tenant(0, 90, running(1, 33, 32)),
                                     of_tenant(0, 90, running(2, 33, 32)),
                                     of_tenant(1, 80, waiting(3, 8))};
  StepBudget budget = k_roomy;
  budget.sequences = 2;
  StepPlan plan = plan_step(views, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(1));
  EXPECT_THAT(plan.admit, ElementsAre(2));

  views[1] = of_tenant(1, 80, running(2, 33, 32));
  EXPECT_THAT(plan_step(views, budget).preempt, IsEmpty()) << "each runs one";
  views[1] = of_tenant(0, 90, running(2, 33, 32));
  views[2].served = 99;
  EXPECT_THAT(plan_step(views, budget).preempt, IsEmpty()) << "it is not its turn";
}

SequenceView as_draft(SequenceView view) {
  view.draft = true;
  return view;
}

TEST(Scheduler, DraftsComeFirstAndWhatIsNoneIsPrefilledInSmallChunksBesideThem) {
  std::vector<SequenceView> views = {running(1, 4000, 512), running(2, 50, 49),
                                     as_draft(running(3, 33, 32)), as_draft(waiting(4, 100))};
  views[0].priority = views[1].priority = -9;
  const uint32_t few = k_roomy.prefill_beside_drafts;
  EXPECT_THAT(
      plan_step(views, k_roomy).rows,
      ElementsAre(PlannedRows{2, 1}, PlannedRows{1, 1}, PlannedRows{3, 100}, PlannedRows{0, few}));
  views[2].parked = true;  // it may go on with the next step
  views.pop_back();
  EXPECT_THAT(plan_step(views, k_roomy).rows, ElementsAre(PlannedRows{1, 1}, PlannedRows{0, few}));
  views.pop_back();
  EXPECT_THAT(plan_step(views, k_roomy).rows, ElementsAre(PlannedRows{1, 1}, PlannedRows{0, 511}));
}

TEST(Scheduler, TheFirstOfThoseBesideDraftsKeepsHalfOfTheirRows) {
  std::vector<SequenceView> views = {as_draft(running(1, 33, 32)), running(2, 4000, 512)};
  for (uint64_t i = 3; i < 7; ++i) views.push_back(waiting(i, 30));
  const StepPlan plan = plan_step(views, k_roomy);
  ASSERT_EQ(plan.rows.size(), 3u);
  EXPECT_EQ(plan.rows[1], (PlannedRows{1, k_roomy.prefill_beside_drafts / 2}));
}

TEST(Scheduler, ADraftTakesASlotOfWhatIsNoneAndLosesItsOwnToNone) {
  StepBudget budget = k_roomy;
  budget.sequences = 1;
  StepPlan plan = plan_step(std::vector{running(1, 33, 32), as_draft(waiting(2, 8))}, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(0));
  EXPECT_THAT(plan.admit, ElementsAre(1));
  SequenceView urgent = of_tenant(1, 0, waiting(2, 8));
  urgent.priority = -9;
  plan = plan_step(std::vector{of_tenant(0, 90, as_draft(running(1, 33, 32))), urgent}, budget);
  EXPECT_THAT(plan.preempt, IsEmpty());
  EXPECT_THAT(plan.admit, IsEmpty());
}

TEST(Scheduler, ADraftTakesBlocksOfWhatIsNoneAndKeepsItsOwnWhileItIsParked) {
  std::vector<SequenceView> views = {as_draft(running(1, 33, 32)), running(2, 33, 32),
                                     as_draft(running(3, 33, 32))};
  views[0].parked = true;
  StepBudget budget = k_roomy;
  budget.blocks_free = 0;
  StepPlan plan = plan_step(views, budget);
  EXPECT_THAT(plan.preempt, ElementsAre(1));
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{2, 1}));
  views.pop_back();
  plan = plan_step(views, budget);
  EXPECT_THAT(plan.preempt, IsEmpty());
  EXPECT_THAT(plan.rows, IsEmpty());
}

}  // namespace
}  // namespace outrider::model
