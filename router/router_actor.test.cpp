#include <gmock/gmock.h>

#include <algorithm>

#include "base/limits.hpp"
#include "router/router_world.test.hpp"

namespace outrider::router {
namespace {

class Router : public RouterWorld {};

TEST_F(Router, PlacesOnAnAnnouncedWorker) {
  const auto target = worker(1);
  ask(request_of(5));
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_TRUE(replies_->at(0).refusal.none());
  EXPECT_EQ(replies_->at(0).target, target);
  EXPECT_EQ(replies_->at(0).key, (RequestKey{5, 1}));
  EXPECT_EQ(replies_->at(0).fingerprint, "fp");
}

TEST_F(Router, ExplainsEachPlacementToWhoDebugs) {
  worker(1);
  lines_.str("");
  ask(request_of(5));
  EXPECT_EQ(lines_.str(), "");
  log_->set_level(spdlog::level::debug);
  ask(request_of(0xab));
  EXPECT_NE(lines_.str().find("session ab.1: worker 1: "), std::string::npos) << lines_.str();
}

TEST_F(Router, HoldsRequestsUntilAWorkerComes) {
  ask(request_of(5));
  EXPECT_TRUE(replies_->empty());
  worker(1);
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_TRUE(replies_->at(0).refusal.none());
}

TEST_F(Router, SaysUnavailableBeforeTheSessionGivesUpOnIt) {
  ask(request_of(5));
  for (uint32_t ms = 0; ms < limits::control_timeout_ms - 500; ms += 500) advance(500);
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_EQ(replies_->at(0).refusal.error_code(), ErrorCode::unavailable);
  EXPECT_GT(replies_->at(0).refusal.retry_after_ms, 0u);
}

TEST_F(Router, HoldsABoundedNumberOfRequests) {
  const auto from = session();
  for (uint32_t i = 0; i <= limits::router_pending_max; ++i) {
    schema::PlaceRequest request = request_of(i);
    request.reply_to = from;
    caf::anon_send(router_, request);
  }
  run();
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_EQ(replies_->at(0).refusal.error_code(), ErrorCode::overloaded);
}

TEST_F(Router, RejectsWhatIsTooMuchAndTakesMoreWhenSessionsEnd) {
  worker(1);
  std::vector<schema::SessionHandle> sessions;
  for (uint64_t i = 0; i < 14; ++i) sessions.push_back(ask(request_of(i)));
  for (const auto& reply : *replies_) EXPECT_TRUE(reply.refusal.none());
  ask(request_of(16));
  EXPECT_EQ(replies_->back().refusal.error_code(), ErrorCode::overloaded);
  EXPECT_EQ(workers()[0].charged_choices, 14u);
  kill(sessions[3]);
  EXPECT_EQ(workers()[0].charged_choices, 13u);
  ask(request_of(17));
  EXPECT_TRUE(replies_->back().refusal.none());
}

TEST_F(Router, AFloodOfOneTenantLeavesRoomForAnother) {
  const auto target = worker(1);
  for (uint64_t i = 0; i < 300; ++i) ask(request_of(i));
  schema::Load load = load_of(1, 2);
  load.running = 8;
  load.waiting = 6;
  heartbeat(target, load);  // It counts what is still charged as well.
  schema::PlaceRequest other = request_of(1000);
  other.tenant = "b";
  ask(other);
  EXPECT_TRUE(replies_->back().refusal.none());
}

TEST_F(Router, SharesSlotsBetweenTenants) {
  worker(1);
  schema::PlaceRequest other = request_of(100);
  other.tenant = "b";
  ask(other);
  for (uint64_t i = 0; i < 8; ++i) {
    ask(request_of(i));
    EXPECT_TRUE(replies_->back().refusal.none()) << i;
  }
  ask(request_of(8));
  EXPECT_EQ(replies_->back().refusal.error_code(), ErrorCode::overloaded);
  other.key.session = 101;
  ask(other);
  EXPECT_TRUE(replies_->back().refusal.none());
}

TEST_F(Router, AMovingSessionIsChargedForEachOfItsAttempts) {
  const auto first = worker(1);
  schema::PlaceRequest request = request_of(5);
  request.choices = 16;
  request.reply_to = session();
  const auto place = [&](uint32_t generation) {
    request.key.generation = generation;
    caf::anon_send(router_, request);
    run();
    EXPECT_TRUE(replies_->back().refusal.none()) << generation;
  };
  place(1);
  EXPECT_EQ(workers()[0].charged_choices, 16u);
  request.choices = 1;
  request.replaces = 1;  // The worker rejected it: what it held there must not keep it out.
  for (uint32_t generation = 2; generation <= 17; ++generation) place(generation);
  EXPECT_EQ(workers()[0].charged_choices, 16u);
  place(17);  // The reply was lost.
  EXPECT_EQ(workers()[0].charged_choices, 16u);
  request.replaces = 17;
  place(18);
  EXPECT_EQ(workers()[0].charged_choices, 16u);
  ask(request_of(6));
  EXPECT_EQ(replies_->back().refusal.error_code(), ErrorCode::overloaded);
  kill(request.reply_to);
  EXPECT_EQ(workers()[0].charged_choices, 0u);
  EXPECT_EQ(listed().placed_again, 18u);
}

TEST_F(Router, AMovingSessionGoesToATwinOnly) {
  worker(1);
  schema::PlaceRequest moving = request_of(5);
  moving.fingerprint = "gone";
  ask(moving);
  EXPECT_TRUE(replies_->empty()) << "held: a twin may come";
  auto twin = worker(2);
  EXPECT_TRUE(replies_->empty());
  schema::Announce announced = announce_of(2);
  announced.fingerprint = "gone";
  announce(twin, announced);
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_EQ(replies_->at(0).target, twin);
}

TEST_F(Router, LeasesADraftAndAnotherOneWhenThatDies) {
  const auto target = worker(1);
  const auto first = draft(2);
  ask_draft(target, 7);
  ASSERT_EQ(leases_->size(), 1u);
  EXPECT_EQ(leases_->at(0).request, (RequestKey{7, 1}));
  EXPECT_EQ(leases_->at(0).draft, first);
  const auto second = draft(3);
  ASSERT_EQ(leases_->size(), 1u) << "a lease that holds is left alone";
  kill(first);
  ASSERT_EQ(leases_->size(), 2u);
  EXPECT_EQ(leases_->at(1).draft, second);
  EXPECT_GT(leases_->at(1).generation, leases_->at(0).generation);
  kill(second);
  ASSERT_EQ(leases_->size(), 3u);
  EXPECT_FALSE(leases_->at(2).draft);
  EXPECT_GT(leases_->at(2).generation, leases_->at(1).generation);
}

TEST_F(Router, ASilentDraftLosesItsLeases) {
  const auto target = worker(1);
  draft(2);
  ask_draft(target, 7);
  for (uint64_t beat = 2; beat < 12; ++beat) {
    advance(limits::heartbeat_interval_ms);
    heartbeat(target, load_of(1, beat));
  }
  ASSERT_EQ(leases_->size(), 2u);
  EXPECT_FALSE(leases_->at(1).draft);
}

TEST_F(Router, LeasesToWhoWaitsAsSoonAsADraftComes) {
  const auto target = worker(1);
  ask_draft(target, 7);
  EXPECT_EQ(leases_->size(), 0u);
  draft(2);
  EXPECT_EQ(leases_->size(), 1u);
}

TEST_F(Router, TellsTargetsHowManyDraftsThereAre) {
  const auto target = worker(1);
  EXPECT_EQ(*known_, (std::vector<uint32_t>{0}));
  const auto first = draft(2);
  draft(3);
  EXPECT_EQ(*known_, (std::vector<uint32_t>{0, 1, 2}));
  kill(first);
  EXPECT_EQ(*known_, (std::vector<uint32_t>{0, 1, 2, 1}));
  for (uint64_t beat = 2; beat < 12; ++beat) {
    advance(limits::heartbeat_interval_ms);
    heartbeat(target, load_of(1, beat));
  }
  EXPECT_EQ(*known_, (std::vector<uint32_t>{0, 1, 2, 1, 0})) << "the other one fell silent";
  announce(target, announce_of(1));
  EXPECT_EQ(known_->size(), 6u) << "who announces itself may have forgotten";
}

TEST_F(Router, CountsWhatWasPlacedAgainNotWhatAsksForIt) {
  schema::PlaceRequest moved = request_of(5);
  moved.replaces = 1;
  moved.key.generation = 2;
  for (int i = 0; i < 3; ++i) ask(moved);
  EXPECT_EQ(listed().placed_again, 0u) << "nobody is there";
  worker(1);
  EXPECT_EQ(listed().placed_again, 1u) << "it was held for whoever comes";
}

TEST_F(Router, ServesSeveralModelsEachByItsOwnTargets) {
  schema::Announce small = announce_of(2);
  small.model = "small";
  const auto large_target = worker(1);
  const auto small_target = worker(2);
  serve({{"tiny", "fp"}, {"small", "fp"}});
  announce(small_target, small);
  EXPECT_TRUE(refused_->empty()) << "equal weights under two names are two models";
  schema::PlaceRequest request = request_of(5);
  request.model = "small";
  ask(request);
  ask(request_of(6));
  request.key.session = 7;
  request.model = "medium";
  ask(request);
  ASSERT_EQ(replies_->size(), 2u) << "nobody serves the third";
  EXPECT_EQ(replies_->at(0).target, small_target);
  EXPECT_EQ(replies_->at(1).target, large_target);
  small.fingerprint = "other weights";
  announce(small_target, small);
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_THAT(refused_->at(0).refusal.message, testing::HasSubstr("others than here"));
}

TEST_F(Router, ATenantsShareOfOneModelIsNoneOfAnother) {
  schema::Announce small = announce_of(2);
  small.model = "small";
  worker(1);
  announce(worker(2), small);
  schema::PlaceRequest others = request_of(1);
  others.model = "small";
  others.tenant = "b";
  ask(others);
  for (uint64_t session = 2; session < 10; ++session) ask(request_of(session));
  schema::PlaceRequest own = request_of(20);
  own.model = "small";
  own.choices = 8;  // with those of the other model it would hold more than half of the slots
  ask(own);
  ASSERT_EQ(replies_->size(), 10u);
  EXPECT_TRUE(replies_->back().refusal.none()) << replies_->back().refusal.message;
}

TEST_F(Router, OutlivesAWorkerThatDoesNotUnderstandIt) {
  const auto target = worker(1);
  caf::anon_send(caf::actor_cast<caf::actor>(router_),
                 caf::make_error(caf::sec::unexpected_message));
  run();
  ask(request_of(5));
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_EQ(replies_->at(0).target, target);
}

}  // namespace
}  // namespace outrider::router
