#include "actors/session_world.test.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using Ids = std::vector<int32_t>;

class SessionLeaving : public SessionWorld {};

TEST_F(SessionLeaving, WhatALeavingTargetGivesAwayGoesOnAtOnceAndSaysWhoHasItsBlocks) {
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  const RequestKey old = key();
  tell(session_, tokens(old, 0, {10, 11, 12}));
  tell(session_, schema::Leaving{old});
  tell(session_, schema::Leaving{old});
  ASSERT_EQ(router_log_->places.size(), 2u) << "without a pause, and once";
  EXPECT_EQ(placed().avoid, (std::vector<uint64_t>{1}));
  EXPECT_EQ(placed().replaces, old.generation);
  EXPECT_TRUE(first.log->all<schema::CancelRequest>().empty()) << "it goes on until another does";
  tell(session_, tokens(old, 3, {13}));
  reply(second);
  const auto begin = second.log->last<schema::SubmitBegin>();
  EXPECT_EQ(begin.kv_worker, 1u);
  EXPECT_EQ(begin.kv_target, first.handle);
  EXPECT_EQ(begin.committed_tokens, 3u);
  tell(session_, tokens(old, 4, {14}));
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12, 13, 14}));
  EXPECT_TRUE(first.log->all<schema::CancelRequest>().empty()) << "nobody else has taken it yet";
  accept(key());
  EXPECT_EQ(first.log->last<schema::CancelRequest>().key, old);
  tell(session_, schema::Leaving{old});
  tell(session_, tokens(old, 5, {66}));
  EXPECT_EQ(router_log_->places.size(), 2u) << "of an old generation";
  tell(session_, tokens(key(), 3, {13, 14, 15}));
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12, 13, 14, 15}));
  const Twin third = twin(3);
  kill(second.handle);
  wait_backoff();
  reply(third);
  EXPECT_EQ(third.log->last<schema::SubmitBegin>().kv_worker, 0u) << "a lost one has nothing";
  EXPECT_FALSE(third.log->last<schema::SubmitBegin>().kv_target);
}

TEST_F(SessionLeaving, AMoveThatFailsLeavesItWithTheTargetThatLeaves) {
  for (const bool by_rejection : {false, true}) {
    client_ = std::make_shared<Collector>();
    if (by_rejection) request_.speculation.method = SpeculationMethod::reject_sampling;
    const Twin first = twin(1);
    start_at(first);
    const RequestKey old = key();
    tell(session_, tokens(old, 0, {10, 11}));
    tell(session_, schema::Leaving{old});
    for (uint32_t i = 0; i < limits::placement_attempts_max + 3; ++i) {
      const Twin other = twin(2 + i);
      reply(other);
      tell(session_, tokens(old, 2 + i, {12}));
      EXPECT_EQ(client_->ids().size(), by_rejection ? 2 + i : 3 + i);
      if (i % 2 == 0) {
        reject(key(), ErrorCode::unavailable);
      } else {
        kill(other.handle);
      }
      ASSERT_FALSE(client_->done()) << "the old one goes on: " << i;
      EXPECT_EQ(first.log->last<schema::Resend>().from_index, by_rejection ? 2 + i : 3 + i);
      if (by_rejection) tell(session_, tokens(old, 2 + i, {12}));
      wait_backoff();
    }
    EXPECT_TRUE(first.log->all<schema::CancelRequest>().empty());
    const Twin last = twin(50);
    reply(last);
    const auto have = static_cast<uint32_t>(client_->ids().size());
    tell(session_, finishing(tokens(old, have, {13})));
    tell(session_, schema::Done{old, {}, {}});
    if (by_rejection) {
      EXPECT_FALSE(client_->done());
      reject(key(), ErrorCode::unavailable);
      tell(session_, finishing(tokens(old, have, {13})));
      tell(session_, schema::Done{old, {}, {}});
    } else {
      EXPECT_EQ(last.log->last<schema::CancelRequest>().key, key()) << "nothing is left for it";
    }
    ASSERT_TRUE(client_->done());
    EXPECT_EQ(client_->outcome(), Outcome::done);
    EXPECT_EQ(client_->ids().size(), have + 1);
  }
}

TEST_F(SessionLeaving, WhatALeavingTargetFinishesNeedsNoOther) {
  const Twin target = twin(1);
  start_at(target);
  const RequestKey old = key();
  tell(session_, tokens(old, 0, {10, 11}));
  tell(session_, schema::Leaving{old});
  for (uint32_t i = 0; i < limits::placement_attempts_max + 3; ++i) {
    refuse(ErrorCode::unavailable);
    wait_backoff();
    ASSERT_FALSE(client_->done()) << "the old one goes on: " << i;
    tell(session_, tokens(old, 2 + i, {12}));
  }
  tell(session_, finishing(tokens(old, 17, {13})));
  tell(session_, schema::Done{old, {}, {}});
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids().size(), 18u);
  EXPECT_EQ(target.log->all<schema::DoneAck>().size(), 1u);
}

TEST_F(SessionLeaving, ALeavingTargetThatDiesBeforeAnotherIsFoundIsReplacedAllTheSame) {
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  tell(session_, tokens(key(), 0, {10, 11}));
  tell(session_, schema::Leaving{key()});
  kill(first.handle);
  reply(second);
  EXPECT_EQ(second.log->last<schema::SubmitBegin>().kv_worker, 0u) << "it has nothing any more";
  tell(session_, finishing(tokens(key(), 1, {11, 12})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12}));
}

TEST_F(SessionLeaving, ChoicesOfALeavingTargetMoveAsFarAsTheyAreByThen) {
  request_.choices = 3;
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  const RequestKey old = key();
  tell(session_, schema::Leaving{old});
  ASSERT_EQ(placed().choices, 3u) << "together: nothing was delivered";
  const RequestKey together = key();
  tell(session_, tokens(old, 0, {10, 11}, 0));
  tell(session_, finishing(tokens(old, 0, {20}, 1)));
  reply(second);
  ASSERT_EQ(router_log_->places.size(), 4u) << "now one by one, charged as such";
  EXPECT_TRUE(second.log->messages.empty());
  const RequestKey third = router_log_->places[2].key;
  EXPECT_EQ(router_log_->places[2].choices, 1u);
  EXPECT_EQ(placed().key, together);
  EXPECT_EQ(placed().choices, 1u);
  reply(second);
  EXPECT_TRUE(first.log->all<schema::CancelRequest>().empty()) << "the third has no other yet";
  EXPECT_EQ(second.log->last<schema::SubmitBegin>().committed_tokens, 1u);
  accept(together);
  tell(session_, tokens(old, 2, {66}, 0));
  tell(session_, tokens(old, 0, {30}, 2));
  tell(session_, schema::PlaceReply{third, {}, second.handle, 2, "fp"});
  EXPECT_TRUE(first.log->all<schema::CancelRequest>().empty()) << "nor has it been let in";
  accept(third);
  EXPECT_EQ(first.log->last<schema::CancelRequest>().key, old);
  tell(session_, finishing(tokens(together, 1, {11, 12})));
  tell(session_, schema::Done{together, {}, {}});
  tell(session_, finishing(tokens(third, 0, {30, 31})));
  tell(session_, schema::Done{third, {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(0), (Ids{10, 11, 12}));
  EXPECT_EQ(client_->ids(1), (Ids{20}));
  EXPECT_EQ(client_->ids(2), (Ids{30, 31}));
}

TEST_F(SessionLeaving, OfAChoiceThatMovedTheLeavingTargetIsNotHeardAgain) {
  request_.choices = 2;
  request_.speculation.method = SpeculationMethod::reject_sampling;
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  const RequestKey old = key();
  tell(session_, tokens(old, 0, {10}, 0));
  tell(session_, tokens(old, 0, {20}, 1));
  tell(session_, schema::Leaving{old});
  ASSERT_EQ(router_log_->places.size(), 3u);
  const RequestKey one = router_log_->places[1].key;
  const RequestKey other = router_log_->places[2].key;
  tell(session_, schema::PlaceReply{one, {}, second.handle, 2, "fp"});
  tell(session_, tokens(one, 1, {11}));
  kill(second.handle);
  tell(session_, tokens(old, 1, {66, 67}, 0));
  EXPECT_EQ(client_->ids(0), (Ids{10, 11}));
  tell(session_, tokens(old, 1, {21}, 1));
  EXPECT_EQ(client_->ids(1), (Ids{20, 21}));
  const Twin third = twin(3);
  tell(session_, schema::PlaceReply{other, {}, third.handle, 3, "fp"});
  accept(other);
  EXPECT_EQ(first.log->last<schema::CancelRequest>().key, old) << "nothing is left for it";
}

TEST_F(SessionLeaving, WhoGaveNothingYetDoesNotHideWhoLeftBefore) {
  const Twin first = twin(1);
  const Twin second = twin(2);
  const Twin third = twin(3);
  start_at(first);
  tell(session_, tokens(key(), 0, {10, 11}));
  tell(session_, schema::Leaving{key()});
  reply(second);
  reject(key(), ErrorCode::unavailable);
  EXPECT_EQ(router_log_->places.size(), 2u) << "a router may not know yet that it leaves: a pause";
  wait_backoff();
  reply(third);
  EXPECT_EQ(third.log->last<schema::SubmitBegin>().kv_worker, 1u);
  tell(session_, schema::Leaving{key()});
  const Twin fourth = twin(4);
  reply(fourth);
  EXPECT_EQ(fourth.log->last<schema::SubmitBegin>().kv_worker, 1u);
}

}  // namespace
}  // namespace outrider::actors
