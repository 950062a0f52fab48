#include "router/admission.hpp"

#include <gtest/gtest.h>

#include "router/placement.hpp"
#include "router/workers.test.hpp"

namespace outrider::router {
namespace {

TEST(Admission, AcceptsWhileAnyWorkerHasRoom) {
  WorkerView full = view_of(1);
  full.others_choices = 16;
  const WorkerView free = view_of(2);
  EXPECT_FALSE(admit(request_of(1), {&full, &free}, {}));
}

TEST(Admission, FullQueuesAreOverloadedWithATimeToRetry) {
  WorkerView full = view_of(1);
  full.placed_choices = 16;
  full.load.queued_rows = 2500;
  const auto refusal = admit(request_of(1), {&full}, {});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->error_code(), ErrorCode::overloaded);
  EXPECT_EQ(refusal->retry_after_ms, 2500u);
}

TEST(Admission, RetryAfterStaysWithinReason) {
  WorkerView full = view_of(1);
  full.others_choices = 16;
  EXPECT_EQ(admit(request_of(1), {&full}, {})->retry_after_ms, 1000u);
  full.load.queued_rows = 100'000'000;
  EXPECT_EQ(admit(request_of(1), {&full}, {})->retry_after_ms, 30'000u);
}

TEST(Admission, ATenantAloneMayHoldAllButTheReserve) {
  WorkerView view = view_of(1);
  view.others_choices = 13;
  EXPECT_FALSE(admit(request_of(1), {&view}, {.own = 13, .others = 0}));
  view.others_choices = 14;
  const auto refusal = admit(request_of(1), {&view}, {.own = 14, .others = 0});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->error_code(), ErrorCode::overloaded);
}

TEST(Admission, TheReserveIsForWhoHoldsNothing) {
  WorkerView view = view_of(1);
  view.others_choices = 15;
  schema::PlaceRequest request = request_of(1);
  EXPECT_FALSE(admit(request, {&view}, {.own = 0, .others = 15}));
  EXPECT_TRUE(admit(request, {&view}, {.own = 1, .others = 14}));
}

TEST(Admission, WithoutKeysNothingIsReserved) {
  WorkerView view = view_of(1);
  view.others_choices = 15;
  schema::PlaceRequest request = request_of(1);
  request.tenant.clear();
  EXPECT_FALSE(admit(request, {&view}, {.own = 15, .others = 0}));
}

TEST(Admission, ATenantKeepsToItsShareWhileOthersWait) {
  const WorkerView view = view_of(1);
  EXPECT_FALSE(admit(request_of(1), {&view}, {.own = 7, .others = 1}));
  const auto refusal = admit(request_of(1), {&view}, {.own = 8, .others = 1});
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->error_code(), ErrorCode::overloaded);
}

TEST(Admission, ARequestThatMovesIsNotJudgedByShareAgain) {
  const WorkerView view = view_of(1);
  schema::PlaceRequest moving = request_of(1);
  moving.fingerprint = "fp";
  EXPECT_FALSE(admit(moving, {&view}, {.own = 99, .others = 1}));
  schema::PlaceRequest untouched = request_of(1);
  untouched.replaces = 1;
  EXPECT_FALSE(admit(untouched, {&view}, {.own = 99, .others = 1})) << "before its first token";
}

TEST(Admission, WhatLostItsWorkerGoesAboveTheQueuesOfOthers) {
  WorkerView view = view_of(1);
  view.others_choices = 16;
  schema::PlaceRequest moving = request_of(1);
  EXPECT_TRUE(admit(moving, {&view}, {}));
  moving.replaces = 1;
  EXPECT_FALSE(admit(moving, {&view}, {}));
  EXPECT_TRUE(place(moving, {&view}, {}));
}

TEST(Admission, WhileItsWorkerGoesOnOnlyAFreeSlotIsWorthAMove) {
  WorkerView view = view_of(1);
  view.others_choices = 8;
  schema::PlaceRequest moving = request_of(1);
  moving.replaces = 1;
  moving.goes_on = true;
  EXPECT_TRUE(admit(moving, {&view}, {}));
  WorkerView idler = view_of(2);
  idler.others_choices = 7;
  EXPECT_FALSE(admit(moving, {&view, &idler}, {}));
  EXPECT_EQ(place(moving, {&view, &idler}, {})->worker, 2u);
}

}  // namespace
}  // namespace outrider::router
