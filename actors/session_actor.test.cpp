#include "actors/session_actor.hpp"

#include "actors/session_world.test.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using Ids = std::vector<int32_t>;

class Session : public SessionWorld {};

TEST_F(Session, PlacesSubmitsStreamsAndEndsWithOneDone) {
  request_.committed = {};
  const Twin target = twin(1);
  open();
  EXPECT_EQ(placed().prompt_tokens, 3u);
  EXPECT_EQ(placed().max_tokens, 8u);
  EXPECT_EQ(placed().model, "tiny");
  EXPECT_EQ(placed().fingerprint, "");
  reply(target);
  EXPECT_EQ(target.log->last<schema::SubmitBegin>().prompt_tokens, 3u);
  EXPECT_EQ(target.log->last<schema::PromptPart>().ids, (Ids{1, 2, 3}));
  EXPECT_EQ(target.log->all<schema::SubmitEnd>().size(), 1u);
  accept(key());
  tell(session_, tokens(key(), 0, {10, 11}));
  tell(session_, finishing(tokens(key(), 2, {12})));
  EXPECT_FALSE(client_->done());
  schema::Done done{key(), {}, {}};
  done.timings.decode_us = 5;
  tell(session_, done);
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12}));
  EXPECT_EQ(client_->finishes.at(0).reason, FinishReason::length);
  EXPECT_EQ(client_->dones[0].timings.decode_us, 5u);
  EXPECT_EQ(target.log->all<schema::DoneAck>().size(), 1u);
}

TEST_F(Session, TargetsThatLeaveAfterTheyLetItInAreNotCounted) {
  open();
  for (uint32_t i = 0; i < 3 * limits::placement_attempts_max; ++i) {
    reply(twin(i + 1));
    accept(key());
    tell(session_, schema::Leaving{key()});
    ASSERT_FALSE(client_->done()) << i;
  }
  reply(twin(99));
  tell(session_, finishing(tokens(key(), 0, {10})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
}

TEST_F(Session, SendsALongPromptInNumberedParts) {
  request_.prompt.assign(limits::prompt_part_tokens_max + 5, 4);
  const Twin target = twin(1);
  open();
  reply(target);
  EXPECT_EQ(target.log->last<schema::SubmitBegin>().parts, 2u);
  const auto parts = target.log->all<schema::PromptPart>();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].ids.size(), limits::prompt_part_tokens_max);
  EXPECT_EQ(parts[1].part, 1u);
  EXPECT_EQ(parts[1].ids.size(), 5u);
}

TEST_F(Session, DropsTokensThatItAlreadyHas) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, tokens(key(), 0, {10, 11}));
  tell(session_, tokens(key(), 0, {10, 11}));
  tell(session_, tokens(key(), 1, {11, 12}));
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12}));
  EXPECT_EQ(client_->events, 2u);
}

TEST_F(Session, OutlivesATargetThatDoesNotUnderstandIt) {
  const Twin target = twin(1);
  start_at(target);
  tell(caf::actor_cast<caf::actor>(session_), caf::make_error(caf::sec::unexpected_message));
  tell(session_, tokens(key(), 0, {10}));
  EXPECT_EQ(client_->ids(), (Ids{10}));
}

TEST_F(Session, AsksOnceForAGapAndGoesOnWhenItIsFilled) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, tokens(key(), 0, {10}));
  tell(session_, tokens(key(), 2, {12}));
  tell(session_, tokens(key(), 3, {13}));
  const auto asked = target.log->all<schema::Resend>();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].from_index, 1u);
  EXPECT_EQ(client_->ids(), (Ids{10}));
  tell(session_, tokens(key(), 1, {11, 12, 13}));
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12, 13}));
  tell(session_, tokens(key(), 5, {15}));
  EXPECT_EQ(target.log->last<schema::Resend>().from_index, 4u);
}

TEST_F(Session, ADoneBeforeItsLastTokensAsksForThem) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, tokens(key(), 0, {10}));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_FALSE(client_->done());
  EXPECT_EQ(target.log->last<schema::Resend>().from_index, 1u);
  tell(session_, schema::Done{key(), {}, {}});  // Each answer to a question ends in one.
  EXPECT_EQ(target.log->all<schema::Resend>().size(), 1u);
  advance(limits::control_timeout_ms);
  EXPECT_EQ(target.log->all<schema::Resend>().size(), 2u);
  tell(session_, finishing(tokens(key(), 1, {11})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
}

TEST_F(Session, ALostDoneIsAskedFor) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, finishing(tokens(key(), 0, {10})));
  advance(limits::control_timeout_ms);
  EXPECT_EQ(target.log->last<schema::Resend>().from_index, 1u);
}

TEST_F(Session, WaitsForPromptLogprobsBeforeItTakesOutput) {
  request_.prompt_logprobs = 0;
  const Twin target = twin(1);
  start_at(target);
  schema::Tokens prompt = tokens(key(), 0, {});
  prompt.prompt_tokens.ids = {1, 2};
  tell(session_, prompt);
  tell(session_, tokens(key(), 0, {10}));
  EXPECT_EQ(target.log->last<schema::Resend>().prompt_from_index, 2u);
  EXPECT_EQ(client_->ids(), Ids{});
  prompt.prompt_first_index = 1;
  prompt.prompt_tokens.ids = {2, 3};
  tell(session_, prompt);
  tell(session_, tokens(key(), 0, {10}));
  EXPECT_EQ(client_->prompt_tokens.size(), 3u);
  EXPECT_EQ(client_->ids(), (Ids{10}));
}

TEST_F(Session, WaitsForPromptLogprobsBeforeItTakesTheEndOfNoOutput) {
  request_.prompt_logprobs = 0;
  request_.stop.max_tokens = 0;
  const Twin target = twin(1);
  start_at(target);
  tell(session_, finishing(tokens(key(), 0, {})));
  EXPECT_EQ(target.log->last<schema::Resend>().prompt_from_index, 0u);
  schema::Tokens prompt = tokens(key(), 0, {});
  prompt.prompt_tokens.ids = {1, 2, 3};
  tell(session_, finishing(prompt));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->prompt_tokens.size(), 3u);
  EXPECT_EQ(client_->outcome(), Outcome::done);
}

TEST_F(Session, ParksItsRowWhileTheClientIsSlowAndAsksForTheRestLater) {
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::full;
  tell(session_, tokens(key(), 0, {10}));
  EXPECT_TRUE(target.log->last<schema::SetParked>().parked);
  tell(session_, finishing(tokens(key(), 1, {11})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->ids(), (Ids{10})) << "nothing may be pushed before the reader says so";
  client_->level = Level::flowing;
  tell(session_, schema::ResumeSession{7});
  EXPECT_FALSE(target.log->last<schema::SetParked>().parked);
  EXPECT_EQ(target.log->last<schema::Resend>().from_index, 1u);
  tell(session_, finishing(tokens(key(), 1, {11})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11}));
}

TEST_F(Session, HoldsItsTerminalEventWhileTheClientIsSlow) {
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::full;
  tell(session_, finishing(tokens(key(), 0, {10})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_FALSE(client_->done());
  tell(session_, schema::ResumeSession{7});
  EXPECT_EQ(client_->outcome(), Outcome::done);
}

TEST_F(Session, ASlowClientIsNotASilentTarget) {
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::full;
  tell(session_, tokens(key(), 0, {10}));
  for (int i = 0; i < 10; ++i) advance(limits::control_timeout_ms);
  EXPECT_EQ(router_log_->places.size(), 1u);
  EXPECT_FALSE(client_->done());
}

TEST_F(Session, CancelsWhenTheClientIsGone) {
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::gone;
  tell(session_, tokens(key(), 0, {10}));
  EXPECT_EQ(target.log->all<schema::CancelRequest>().size(), 1u);
  EXPECT_EQ(client_->outcome(), Outcome::cancelled);
}

TEST_F(Session, CanBeCancelledInEachPhase) {
  const Twin target = twin(1);
  const std::vector<std::function<void()>> phases = {
      [&] {},                                   // placing
      [&] { refuse(ErrorCode::unavailable); },  // waiting
      [&] { reply(target); },                   // submitted
      [&] {
        reply(target);
        accept(key());
      },  // streaming
  };
  for (size_t phase = 0; phase < phases.size(); ++phase) {
    client_ = std::make_shared<Collector>();
    const size_t cancels = target.log->all<schema::CancelRequest>().size();
    open();
    phases[phase]();
    tell(session_, schema::CancelSession{7});
    ASSERT_TRUE(client_->done()) << phase;
    EXPECT_EQ(client_->outcome(), Outcome::cancelled) << phase;
    EXPECT_EQ(client_->error(), ErrorCode::cancelled) << phase;
    EXPECT_EQ(target.log->all<schema::CancelRequest>().size(), cancels + (phase >= 2 ? 1 : 0));
    advance(10'000);
  }
}

TEST_F(Session, ThatIsKilledStillEndsItsStream) {
  const Twin target = twin(1);
  start_at(target);
  kill(session_);
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->outcome(), Outcome::failed);
  EXPECT_EQ(client_->error(), ErrorCode::internal);
}

}  // namespace
}  // namespace outrider::actors
