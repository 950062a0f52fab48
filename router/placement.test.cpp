#include "router/placement.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/limits.hpp"
#include "router/workers.test.hpp"

namespace outrider::router {
namespace {

using std::chrono::milliseconds;

std::vector<const WorkerView*> pointers(const std::vector<WorkerView>& views) {
  std::vector<const WorkerView*> all;
  for (const WorkerView& view : views) all.push_back(&view);
  return all;
}

TEST(Placement, CostListsEachTerm) {
  WorkerView view = view_of(7);
  view.load.queued_rows = 300;
  view.charged_rows = 200;
  view.announce.prefill_row_ns = 500'000;
  view.announce.attention_pair_ps = 1'000'000;
  const PlacementCost cost = placement_cost(request_of(1, 100), view);
  EXPECT_DOUBLE_EQ(cost.queue_ms, 500.0);
  EXPECT_DOUBLE_EQ(cost.prefill_ms, 50.0);
  EXPECT_DOUBLE_EQ(cost.attention_ms, 5.0);
  EXPECT_DOUBLE_EQ(cost.kv_pressure_ms, 0.0);
  EXPECT_EQ(explain(cost),
            "worker 7: 555.0 ms = queue 500.0 + prefill 50.0 + attention 5.0 + kv 0.0");
}

TEST(Placement, ATermThatWasNotMeasuredCostsNothing) {
  WorkerView view = view_of(7);
  view.load.rows_per_s = 0;
  const PlacementCost cost = placement_cost(request_of(1), view);
  EXPECT_EQ(cost.total_ms(), 0.0);
}

TEST(Placement, KvPressureBeginsAboveNinetyPercent) {
  WorkerView view = view_of(7);
  view.load.blocks_free = 101;
  EXPECT_DOUBLE_EQ(placement_cost(request_of(1), view).kv_pressure_ms, 0.0);
  view.load.blocks_free = 0;
  EXPECT_NEAR(placement_cost(request_of(1), view).kv_pressure_ms, 1000.0, 1e-6);
}

TEST(Placement, TakesTheCheapestWorkerThatHasRoom) {
  std::vector<WorkerView> views = {view_of(1), view_of(2), view_of(3)};
  views[0].load.queued_rows = 900;
  views[1].others_choices = 16;
  views[2].load.queued_rows = 800;
  EXPECT_EQ(place(request_of(1), pointers(views), {})->worker, 3u);
  views[0].others_choices = views[2].others_choices = 16;
  EXPECT_FALSE(place(request_of(1), pointers(views), {}));
}

TEST(Placement, AvoidsAWorkerThatJustFailedUnlessItIsTheOnlyOne) {
  std::vector<WorkerView> views = {view_of(1), view_of(2)};
  views[1].load.queued_rows = 100'000;
  schema::PlaceRequest request = request_of(1);
  request.avoid = {1};
  EXPECT_EQ(place(request, pointers(views), {})->worker, 2u);
  views.pop_back();
  EXPECT_EQ(place(request, pointers(views), {})->worker, 1u);
}

TEST(Placement, WhoIsLateWithTwoHeartbeatsGetsWhatNobodyElseCanTake) {
  std::vector<WorkerView> views = {view_of(1), view_of(2)};
  views[1].load.queued_rows = 100'000;
  views[1].heard = milliseconds(100);
  const milliseconds now(limits::heartbeat_late_ms);
  EXPECT_EQ(place(request_of(1), pointers(views), now)->worker, 1u);
  EXPECT_EQ(place(request_of(1), pointers(views), now + milliseconds(1))->worker, 2u);
  views[1].others_choices = 16;
  EXPECT_EQ(place(request_of(1), pointers(views), now + milliseconds(1))->worker, 1u);
}

TEST(Placement, EqualWorkersAreChosenByTheRequestAlone) {
  const std::vector<WorkerView> views = {view_of(1), view_of(2), view_of(3)};
  std::vector<const WorkerView*> order = pointers(views);
  const std::vector<const WorkerView*> reversed(order.rbegin(), order.rend());
  std::set<uint64_t> used;
  for (uint64_t session = 0; session < 100; ++session) {
    const uint64_t worker = place(request_of(session), order, {})->worker;
    EXPECT_EQ(worker, place(request_of(session), reversed, {})->worker);
    used.insert(worker);
  }
  EXPECT_EQ(used.size(), 3u);
}

TEST(Placement, AThousandRequestsBetweenHeartbeatsDoNotHerd) {
  WorkerTable table;
  for (uint64_t worker = 1; worker <= 4; ++worker) {
    schema::Announce announce = announce_of(worker);
    announce.waiting = 2000;
    table.announce(announce, milliseconds(0));
    ASSERT_TRUE(table.update(load_of(worker), milliseconds(0)));
  }
  std::map<uint64_t, uint32_t> placed;
  for (uint64_t session = 0; session < 1000; ++session) {
    const auto request = request_of(session, 50 + static_cast<uint32_t>(session * 37 % 200));
    const auto cost = place(request, table.candidates(request), {});
    ASSERT_TRUE(cost);
    ++placed[cost->worker];
    table.charge(charge_for(request, cost->worker, milliseconds(1)));
  }
  ASSERT_EQ(placed.size(), 4u);
  for (const auto& [worker, count] : placed) {
    EXPECT_GE(count, 225u) << worker;
    EXPECT_LE(count, 275u) << worker;
  }
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const auto& [worker, view] : table.workers()) {
    least = std::min(least, view.charged_rows);
    most = std::max(most, view.charged_rows);
  }
  EXPECT_LE(most - least, 300u) << "the work differs by about one request";
}

TEST(WorkerTable, AChargeLastsUntilAHeartbeatThatMustIncludeIt) {
  WorkerTable table;
  table.announce(announce_of(1), milliseconds(0));
  table.charge(charge_for(request_of(5), 1, milliseconds(1000)));
  EXPECT_EQ(table.workers().at(1).charged_rows, 150u);
  ASSERT_TRUE(table.update(load_of(1, 1), milliseconds(1100)));
  EXPECT_EQ(table.workers().at(1).charged_choices, 1u) << "it may have been sent before";
  ASSERT_TRUE(table.update(load_of(1, 2), milliseconds(1600)));
  EXPECT_EQ(table.workers().at(1).charged_choices, 0u);
  EXPECT_EQ(table.workers().at(1).charged_rows, 0u);
}

TEST(WorkerTable, WhatEndedSinceTheLastLoadIsNotHeldAgainstAnybody) {
  WorkerTable table;
  table.announce(announce_of(1), milliseconds(0));
  const auto held = [&] { return table.workers().at(1).held_choices(); };
  for (uint64_t session = 1; session <= 16; ++session) {
    table.charge(charge_for(request_of(session), 1, milliseconds(0)));
  }
  schema::Load full = load_of(1, 1);
  full.running = 8;
  full.waiting = 8;
  ASSERT_TRUE(table.update(full, milliseconds(500)));
  EXPECT_TRUE(table.workers().at(1).full());
  table.release_session(1);
  EXPECT_EQ(held(), 15u);
  // It was there when the next load was written, and had ended when that came.
  full.sequence = 2;
  ASSERT_TRUE(table.update(full, milliseconds(1000)));
  EXPECT_EQ(held(), 15u);
  // Three of another router's.
  full.sequence = 3;
  full.waiting = 10;
  ASSERT_TRUE(table.update(full, milliseconds(1500)));
  EXPECT_EQ(held(), 18u);
  for (uint64_t session = 2; session <= 16; ++session) table.release_session(session);
  EXPECT_EQ(held(), 3u);
  ASSERT_TRUE(table.update(load_of(1, 4), milliseconds(2000)));
  EXPECT_EQ(held(), 0u);
}

TEST(WorkerTable, AReleasedSessionBurdensNobody) {
  WorkerTable table;
  table.announce(announce_of(1), milliseconds(0));
  table.charge(charge_for(request_of(5), 1, milliseconds(0)));
  table.charge(charge_for(request_of(6), 1, milliseconds(0)));
  table.release_session(5);
  EXPECT_EQ(table.workers().at(1).charged_choices, 1u);
  EXPECT_EQ(table.workers().at(1).charged_rows, 150u);
}

TEST(WorkerTable, AttemptsOfOneSessionAreChargedSideBySide) {
  WorkerTable table;
  table.announce(announce_of(1), milliseconds(0));
  schema::PlaceRequest request = request_of(5);
  for (uint32_t generation = 1; generation <= 3; ++generation) {
    request.key.generation = generation;
    table.charge(charge_for(request, 1, milliseconds(0)));
  }
  EXPECT_EQ(table.workers().at(1).placed_choices, 3u);
  table.release({5, 2});
  EXPECT_EQ(table.workers().at(1).placed_choices, 2u);
  EXPECT_EQ(table.workers().at(1).charged_rows, 300u);
  table.release_session(5);
  EXPECT_EQ(table.workers().at(1).placed_choices, 0u);
}

TEST(WorkerTable, ANewIncarnationStartsFromNothing) {
  WorkerTable table;
  table.announce(announce_of(1, 10), milliseconds(0));
  schema::Load busy = load_of(1, 50, 10);
  busy.queued_rows = 999;
  ASSERT_TRUE(table.update(busy, milliseconds(0)));
  table.charge(charge_for(request_of(5), 1, milliseconds(0)));
  EXPECT_FALSE(table.update(load_of(1, 1, 11), milliseconds(1))) << "not announced yet";
  table.announce(announce_of(1, 11), milliseconds(2));
  EXPECT_EQ(table.workers().at(1).load.queued_rows, 0u);
  EXPECT_EQ(table.workers().at(1).charged_choices, 0u);
  EXPECT_FALSE(table.update(busy, milliseconds(3))) << "the dead incarnation's last words";
  ASSERT_TRUE(table.update(load_of(1, 1, 11), milliseconds(3)));
}

TEST(WorkerTable, HintsAreSummedOnceForEachIncarnation) {
  WorkerTable table;
  const auto tell = [&](uint64_t incarnation, uint64_t sequence, uint64_t drafts) {
    table.announce(announce_of(1, incarnation), milliseconds(0));
    schema::Load load = load_of(1, sequence, incarnation);
    HintCounters hints;
    hints.drafts = drafts;
    hints.accepted_at[2] = 2 * drafts;
    load.hints = hints;
    ASSERT_TRUE(table.update(load, milliseconds(0)));
  };
  tell(10, 1, 5);
  EXPECT_EQ(table.hints().drafts, 0u) << "before the router was there";
  tell(10, 2, 7);
  table.remove(1);  // Silent, and back: its total is the same one.
  tell(10, 3, 8);
  EXPECT_EQ(table.hints().drafts, 3u);
  tell(11, 1, 0);  // A process anew.
  tell(11, 2, 4);
  EXPECT_EQ(table.hints().drafts, 7u);
  EXPECT_EQ(table.hints().accepted_at[2], 14u);
  for (uint64_t incarnation = 12; incarnation < 1000; ++incarnation) {
    tell(incarnation, 1, 0);
    tell(incarnation, 2, 1);
  }
  EXPECT_EQ(table.hints().drafts, 7u + 988u) << "more than are remembered one by one";
  tell(10, 4, 9);  // Silent for so long that it was not remembered.
  EXPECT_EQ(table.hints().drafts, 7u + 988u);
  tell(10, 5, 11);
  EXPECT_EQ(table.hints().drafts, 7u + 988u + 2u);
}

TEST(WorkerTable, AnOldLoadIsAliveButNotNews) {
  WorkerTable table;
  table.announce(announce_of(1), milliseconds(0));
  schema::Load newer = load_of(1, 9);
  newer.running = 4;
  ASSERT_TRUE(table.update(newer, milliseconds(0)));
  ASSERT_TRUE(table.update(load_of(1, 8), milliseconds(0)));
  EXPECT_EQ(table.workers().at(1).load.running, 4u);
}

TEST(WorkerTable, SilentWorkersAgeOut) {
  WorkerTable table;
  table.announce(announce_of(1), milliseconds(0));
  table.announce(announce_of(2), milliseconds(0));
  ASSERT_TRUE(table.update(load_of(2), milliseconds(1000)));
  EXPECT_TRUE(table.age_out(milliseconds(limits::heartbeat_timeout_ms)).empty());
  const auto silent = table.age_out(milliseconds(limits::heartbeat_timeout_ms + 1));
  ASSERT_EQ(silent.size(), 1u);
  EXPECT_EQ(silent[0].worker, 1u);
  EXPECT_EQ(table.workers().size(), 1u);
}

TEST(WorkerTable, OnlyTwinsOfTheModelAreCandidates) {
  WorkerTable table;
  schema::Announce other = announce_of(2);
  other.fingerprint = "another";
  schema::Announce draft = announce_of(3);
  draft.role = schema::Role::draft;
  table.announce(announce_of(1), milliseconds(0));
  table.announce(other, milliseconds(0));
  table.announce(draft, milliseconds(0));
  schema::PlaceRequest request = request_of(5);
  EXPECT_EQ(table.candidates(request).size(), 2u);
  request.fingerprint = "fp";
  ASSERT_EQ(table.candidates(request).size(), 1u);
  EXPECT_EQ(table.candidates(request)[0]->announce.worker, 1u);
  request.model = "big";
  EXPECT_TRUE(table.candidates(request).empty());
}

TEST(WorkerTable, AContextThatThePromptFillsIsNoCandidate) {
  WorkerTable table;
  schema::Announce small = announce_of(1);
  small.context_tokens = 100;
  table.announce(small, milliseconds(0));
  table.announce(announce_of(2), milliseconds(0));
  EXPECT_EQ(table.candidates(request_of(5, 99)).size(), 2u);
  ASSERT_EQ(table.candidates(request_of(5, 100)).size(), 1u);
  EXPECT_EQ(table.candidates(request_of(5, 100))[0]->announce.worker, 2u);
}

}  // namespace
}  // namespace outrider::router
