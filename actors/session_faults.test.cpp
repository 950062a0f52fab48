#include <numeric>

#include "actors/session_world.test.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using Ids = std::vector<int32_t>;

class SessionFaults : public SessionWorld {
 protected:
  /// The first target says tokens 10, 11, … and is lost; the second one has the request.
  void lose_after(uint32_t count, const Twin& first, const Twin& second) {
    start_at(first);
    Ids said(count);
    std::iota(said.begin(), said.end(), 10);
    tell(session_, tokens(key(), 0, said));
    kill(first.handle);
    wait_backoff();
    reply(second);
  }
};

TEST_F(SessionFaults, ALostTargetIsReplacedByATwinThatContinuesAfterTheCommittedTokens) {
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  const RequestKey old = key();
  tell(session_, tokens(old, 0, {10, 11, 12}));
  kill(first.handle);
  wait_backoff();
  ASSERT_EQ(router_log_->places.size(), 2u);
  EXPECT_GT(key().generation, old.generation);
  EXPECT_EQ(placed().fingerprint, "fp");
  EXPECT_EQ(placed().avoid, (std::vector<uint64_t>{1}));
  EXPECT_EQ(placed().prompt_tokens, 5u);
  EXPECT_EQ(placed().max_tokens, 6u);
  reply(second);
  EXPECT_EQ(second.log->last<schema::SubmitBegin>().prompt_tokens, 3u);
  EXPECT_EQ(second.log->last<schema::SubmitBegin>().committed_tokens, 2u);
  EXPECT_FALSE(first.log->last<schema::SubmitBegin>().request.continues);
  EXPECT_TRUE(second.log->last<schema::SubmitBegin>().request.continues);
  EXPECT_EQ(second.log->last<schema::PromptPart>().ids, (Ids{1, 2, 3, 10, 11}));
  accept(key());
  tell(session_, tokens(key(), 2, {12, 13}));
  tell(session_, finishing(tokens(key(), 4, {14})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12, 13, 14}));
}

TEST_F(SessionFaults, AFinishLostWithTheTargetIsComputedAgain) {
  lose_after(2, twin(1), twin(2));
  tell(session_, finishing(tokens(key(), 1, {11}), FinishReason::stop));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11}));
}

TEST_F(SessionFaults, AContinuationThatContradictsTheStreamFailsLoudly) {
  lose_after(2, twin(1), twin(2));
  tell(session_, tokens(key(), 1, {99}));
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->outcome(), Outcome::failed);
  EXPECT_EQ(client_->ids(), (Ids{10, 11}));
}

TEST_F(SessionFaults, ACorruptMessageIsAFailureOfItsWorker) {
  const Twin second = twin(2);
  start_at(twin(1));
  tell(session_, tokens(key(), 0, {10}));
  schema::Tokens corrupt = tokens(key(), 1, {11});
  corrupt.tokens.logprobs = {2};  // neither one nor none
  tell(session_, corrupt);
  EXPECT_FALSE(client_->done());
  wait_backoff();
  EXPECT_EQ(placed().avoid, (std::vector<uint64_t>{1}));
  reply(second);
  tell(session_, finishing(tokens(key(), 1, {11})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11}));
}

TEST_F(SessionFaults, WhereDraftsHaveASayATwinDrawsNothingAgain) {
  request_.speculation.method = SpeculationMethod::reject_sampling;
  const Twin second = twin(2);
  lose_after(2, twin(1), second);
  EXPECT_EQ(second.log->last<schema::SubmitBegin>().committed_tokens, 2u);
  tell(session_, finishing(tokens(key(), 2, {12})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(), (Ids{10, 11, 12}));
}

TEST_F(SessionFaults, MessagesOfAnOldGenerationAreDropped) {
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  const RequestKey old = key();
  tell(session_, tokens(old, 0, {10}));
  kill(first.handle);
  wait_backoff();
  reply(second);
  tell(session_, tokens(old, 1, {66}));
  tell(session_, finishing(tokens(old, 1, {66})));
  tell(session_, schema::Done{old, {}, {}});
  reject(old, ErrorCode::invalid_argument);
  EXPECT_EQ(client_->ids(), (Ids{10}));
  EXPECT_FALSE(client_->done());
}

TEST_F(SessionFaults, WhoWasLetInOnceWaitsWhereAllQueuesAreFull) {
  const Twin second = twin(2);
  open();
  const Twin first = twin(1);
  reply(first);
  tell(session_, schema::Leaving{key()});  // before it was accepted
  for (uint32_t waited = 0; waited < limits::placement_full_ms / 2;
       waited += limits::placement_backoff_max_ms) {
    refuse(ErrorCode::overloaded, 1000);
    wait_backoff();
    ASSERT_FALSE(client_->done()) << waited;
  }
  reply(second);
  tell(session_, finishing(tokens(key(), 0, {10})));
  tell(session_, schema::Done{key(), {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
}

TEST_F(SessionFaults, ButNotForEver) {
  const Twin target = twin(1);
  start_at(target);
  kill(target.handle);
  wait_backoff();
  for (uint32_t waited = 0; waited <= limits::placement_full_ms && !client_->done();
       waited += limits::placement_backoff_max_ms) {
    refuse(ErrorCode::overloaded, 1000);
    wait_backoff();
  }
  refuse(ErrorCode::overloaded, 1000);
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->outcome(), Outcome::failed);
  EXPECT_EQ(client_->error(), ErrorCode::overloaded);
}

TEST_F(SessionFaults, TargetsThatLeaveBeforeTheyLetItInEndARequestInTheEnd) {
  open();
  for (uint32_t i = 0; i < limits::placement_attempts_max; ++i) {
    ASSERT_FALSE(client_->done()) << i;
    reply(twin(i + 1));
    tell(session_, schema::Leaving{key()});
    wait_backoff();
  }
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->outcome(), Outcome::rejected);
}

TEST_F(SessionFaults, OnlyUnfinishedChoicesMoveEachWithItsOwnSeed) {
  request_.choices = 3;
  const Twin first = twin(1);
  const Twin second = twin(2);
  start_at(first);
  tell(session_, tokens(key(), 0, {10, 11}, 0));
  tell(session_, finishing(tokens(key(), 0, {20}, 1)));
  kill(first.handle);
  wait_backoff();
  ASSERT_EQ(router_log_->places.size(), 3u);
  const std::vector<RequestKey> keys = {router_log_->places[1].key, router_log_->places[2].key};
  EXPECT_EQ(router_log_->places[0].replaces, 0u);
  EXPECT_EQ(router_log_->places[1].replaces, router_log_->places[0].key.generation);
  EXPECT_EQ(router_log_->places[2].replaces, router_log_->places[0].key.generation);
  for (const RequestKey moved : keys) {
    tell(session_, schema::PlaceReply{moved, {}, second.handle, 2, "fp"});
  }
  const auto begins = second.log->all<schema::SubmitBegin>();
  ASSERT_EQ(begins.size(), 2u);
  EXPECT_EQ(begins[0].request.seed, 100u);
  EXPECT_EQ(begins[0].committed_tokens, 1u);
  EXPECT_EQ(begins[1].request.seed, 102u);
  EXPECT_EQ(begins[1].committed_tokens, 0u);
  EXPECT_EQ(begins[1].request.choices, 1u);
  tell(session_, finishing(tokens(keys[0], 1, {11, 12})));
  tell(session_, schema::Done{keys[0], {}, {}});
  EXPECT_FALSE(client_->done());
  tell(session_, finishing(tokens(keys[1], 0, {30})));
  tell(session_, schema::Done{keys[1], {}, {}});
  EXPECT_EQ(client_->outcome(), Outcome::done);
  EXPECT_EQ(client_->ids(0), (Ids{10, 11, 12}));
  EXPECT_EQ(client_->ids(1), (Ids{20}));
  EXPECT_EQ(client_->ids(2), (Ids{30}));
}

TEST_F(SessionFaults, UntouchedChoicesMoveTogether) {
  request_.choices = 2;
  const Twin first = twin(1);
  start_at(first);
  kill(first.handle);
  wait_backoff();
  ASSERT_EQ(router_log_->places.size(), 2u);
  EXPECT_EQ(placed().choices, 2u);
  EXPECT_EQ(placed().fingerprint, "") << "nothing was delivered: any worker will do";
}

TEST_F(SessionFaults, AWrongRequestIsRejectedAtOnce) {
  const Twin target = twin(1);
  open();
  reply(target);
  reject(key(), ErrorCode::invalid_argument);
  EXPECT_EQ(client_->outcome(), Outcome::rejected);
  EXPECT_EQ(client_->error(), ErrorCode::invalid_argument);
}

TEST_F(SessionFaults, AnOverloadedRouterRejectsWithRetryAfter) {
  open();
  refuse(ErrorCode::overloaded, 1500);
  EXPECT_EQ(client_->outcome(), Outcome::rejected);
  EXPECT_EQ(client_->error(), ErrorCode::overloaded);
  EXPECT_EQ(client_->dones[0].retry_after_ms, 1500u);
}

TEST_F(SessionFaults, AnUnavailableRouterIsAskedAgainABoundedNumberOfTimes) {
  open();
  for (uint32_t asked = 1; asked <= limits::placement_attempts_max; ++asked) {
    EXPECT_EQ(router_log_->places.size(), asked);
    EXPECT_FALSE(client_->done());
    refuse(ErrorCode::unavailable, 700);
    wait_backoff();
  }
  EXPECT_EQ(router_log_->places.size(), limits::placement_attempts_max);
  EXPECT_EQ(client_->outcome(), Outcome::rejected);
  EXPECT_EQ(client_->error(), ErrorCode::unavailable);
  EXPECT_EQ(client_->dones[0].retry_after_ms, 700u);
}

TEST_F(SessionFaults, ThatNoTargetIsThereCountsApartFromTargetsThatFail) {
  open();
  for (uint32_t losses = 0; losses + 1 < limits::placement_attempts_max; ++losses) {
    for (uint32_t asked = 0; asked + 1 < limits::placement_attempts_max; ++asked) {
      refuse(ErrorCode::unavailable);
      wait_backoff();
    }
    const Twin target = twin(losses + 1);
    reply(target);
    kill(target.handle);
    ASSERT_FALSE(client_->done()) << losses;
    wait_backoff();
  }
  const Twin last = twin(limits::placement_attempts_max);
  reply(last);
  kill(last.handle);
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->error(), ErrorCode::unavailable);
  EXPECT_NE(client_->dones[0].error->message.find("12 workers in a row"), std::string::npos);
}

TEST_F(SessionFaults, WhoFindsNoTargetIsToldHowLongAndWhatItHadLost) {
  open();
  for (uint32_t losses = 0; losses < 2; ++losses) {
    const Twin target = twin(losses + 1);
    reply(target);
    kill(target.handle);
    wait_backoff();
  }
  refuse(ErrorCode::unavailable);
  for (uint32_t asked = 1; asked < limits::placement_attempts_max; ++asked) {
    ASSERT_FALSE(client_->done()) << asked;
    advance(limits::placement_backoff_max_ms);
    refuse(ErrorCode::unavailable);
  }
  ASSERT_TRUE(client_->done());
  const std::string& message = client_->dones[0].error->message;
  EXPECT_NE(message.find("given up after 11 s, after 2 had failed"), std::string::npos) << message;
}

TEST_F(SessionFaults, ASilentRouterIsAskedAgainABoundedNumberOfTimes) {
  open();
  for (uint32_t i = 0; i < 3 * limits::placement_attempts_max; ++i) {
    advance(limits::control_timeout_ms);
  }
  EXPECT_EQ(router_log_->places.size(), limits::placement_attempts_max);
  EXPECT_EQ(client_->outcome(), Outcome::rejected);
  EXPECT_EQ(client_->error(), ErrorCode::unavailable);
}

TEST_F(SessionFaults, OneTimerRunsHoweverOftenItHadToBeEarlier) {
  const Twin target = twin(1);
  open();
  for (int refusals = 0; refusals < 3; ++refusals) {
    refuse(ErrorCode::unavailable);
    wait_backoff();
  }
  reply(target);
  accept(key());
  advance(2000);  // All ticks of before have come.
  EXPECT_EQ(scheduler_.advance_time(std::chrono::seconds(1)), 1u);
}

TEST_F(SessionFaults, ATargetThatKnowsNothingIsLeft) {
  const Twin first = twin(1);
  const Twin second = twin(2);
  open();
  reply(first);
  advance(limits::control_timeout_ms);
  EXPECT_EQ(first.log->all<schema::Resend>().size(), 1u) << "the submit may have been lost";
  reject(key(), ErrorCode::not_found);
  wait_backoff();
  EXPECT_EQ(router_log_->places.size(), 2u);
  reply(second);
  EXPECT_EQ(second.log->all<schema::SubmitEnd>().size(), 1u);
}

TEST_F(SessionFaults, ARequestThatEachTargetLosesIsUnavailableNotUnknown) {
  const Twin target = twin(1);
  open();
  for (uint32_t tries = 0; tries < limits::placement_attempts_max; ++tries) {
    EXPECT_FALSE(client_->done());
    reply(target);
    reject(key(), ErrorCode::not_found);
    wait_backoff();
  }
  ASSERT_TRUE(client_->done());
  EXPECT_EQ(client_->error(), ErrorCode::unavailable);
}

TEST_F(SessionFaults, AllThatFailedSinceTheLastProgressAreAvoided) {
  open();
  for (const uint64_t worker : {1, 2, 3}) {
    const Twin target = twin(worker);
    reply(target);
    kill(target.handle);
    wait_backoff();
  }
  EXPECT_EQ(placed().avoid, (std::vector<uint64_t>{1, 2, 3})) << "or two of them take turns";
  const Twin target = twin(4);
  reply(target);
  accept(key());
  tell(session_, tokens(key(), 0, {10}));
  kill(target.handle);
  wait_backoff();
  EXPECT_EQ(placed().avoid, (std::vector<uint64_t>{4}));
}

TEST_F(SessionFaults, ASilentTargetIsProbedThenLeft) {
  const Twin first = twin(1);
  start_at(first);
  tell(session_, tokens(key(), 0, {10}));
  for (uint32_t i = 0; i < limits::session_probes_max; ++i) advance(limits::control_timeout_ms);
  EXPECT_EQ(router_log_->places.size(), 1u);
  advance(limits::control_timeout_ms);
  wait_backoff();
  EXPECT_EQ(router_log_->places.size(), 2u);
  EXPECT_EQ(first.log->all<schema::CancelRequest>().size(), 1u) << "it may only have been slow";
}

TEST_F(SessionFaults, ATargetThatAnswersProbesIsKept) {
  const Twin target = twin(1);
  start_at(target);
  for (uint32_t i = 0; i < 10; ++i) {
    advance(limits::control_timeout_ms);
    accept(key());
  }
  EXPECT_EQ(router_log_->places.size(), 1u);
}

TEST_F(SessionFaults, ALostParkIsRepeatedThoughTokensKeepComing) {
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::full;
  tell(session_, tokens(key(), 0, {10}));
  target.log->messages.clear();  // Lost: the row goes on.
  for (uint32_t index = 1; index < 4; ++index) {
    advance(limits::control_timeout_ms / 2);
    tell(session_, tokens(key(), index, {11}));
  }
  EXPECT_TRUE(target.log->last<schema::SetParked>().parked);
}

TEST_F(SessionFaults, ALostUnparkIsRepeatedByTheNextProbe) {
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::full;
  tell(session_, tokens(key(), 0, {10}));
  client_->level = Level::flowing;
  tell(session_, schema::ResumeSession{7});
  target.log->messages.clear();  // Lost: the row stays parked, and all it says is that it lives.
  accept(key());
  advance(limits::control_timeout_ms);
  ASSERT_EQ(target.log->all<schema::SetParked>().size(), 1u);
  EXPECT_FALSE(target.log->last<schema::SetParked>().parked);
}

TEST_F(SessionFaults, ALostQuestionForAGapIsRepeatedThoughTokensKeepComing) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, tokens(key(), 0, {10}));
  tell(session_, tokens(key(), 2, {12}));
  target.log->messages.clear();  // Lost: nobody fills the gap.
  for (uint32_t index = 3; index < 6; ++index) {
    advance(limits::control_timeout_ms / 2);
    tell(session_, tokens(key(), index, {13}));
  }
  EXPECT_EQ(target.log->last<schema::Resend>().from_index, 1u);
}

TEST_F(SessionFaults, AWorkerWithAnotherFingerprintIsNotUsed) {
  const Twin first = twin(1);
  const Twin stranger = twin(2);
  start_at(first);
  tell(session_, tokens(key(), 0, {10}));
  kill(first.handle);
  wait_backoff();
  reply(stranger, "another");
  EXPECT_TRUE(stranger.log->messages.empty());
  wait_backoff();
  EXPECT_EQ(router_log_->places.size(), 3u);
}

TEST_F(SessionFaults, ProgressRenewsTheNumberOfTries) {
  open();
  int32_t next = 0;
  for (uint32_t loss = 0; loss < 3 * limits::placement_attempts_max; ++loss) {
    const Twin target = twin(loss);
    reply(target);
    const auto from = static_cast<uint32_t>(std::max(next - 1, 0));
    tell(session_, tokens(key(), from, next == 0 ? Ids{0} : Ids{next - 1, next}));
    ++next;
    kill(target.handle);
    wait_backoff();
  }
  EXPECT_FALSE(client_->done());
  EXPECT_EQ(client_->ids().size(), static_cast<size_t>(next));
}

TEST_F(SessionFaults, ATargetThatGivesUpIsReplaced) {
  const Twin first = twin(1);
  start_at(first);
  tell(session_, finishing(tokens(key(), 0, {10}), FinishReason::cancelled));
  wait_backoff();
  EXPECT_EQ(router_log_->places.size(), 2u);
  EXPECT_FALSE(client_->done());
  EXPECT_EQ(client_->ids(), (Ids{10})) << "what came with the end counts as committed";
}

TEST_F(SessionFaults, TheDeadlineEndsARequestWhereverItIs) {
  request_.deadline_ms = 500;
  open();
  advance(499);
  EXPECT_FALSE(client_->done());
  advance(1);
  EXPECT_EQ(client_->outcome(), Outcome::rejected);
  EXPECT_EQ(client_->error(), ErrorCode::deadline_exceeded);
}

TEST_F(SessionFaults, TheDeadlineCancelsARunningRequest) {
  request_.deadline_ms = 500;
  const Twin target = twin(1);
  open();
  advance(100);
  reply(target);
  EXPECT_EQ(target.log->last<schema::SubmitBegin>().request.deadline_ms, 400u);
  accept(key());
  advance(400);
  EXPECT_EQ(client_->outcome(), Outcome::cancelled);
  EXPECT_EQ(client_->error(), ErrorCode::deadline_exceeded);
  EXPECT_EQ(target.log->all<schema::CancelRequest>().size(), 1u);
}

TEST_F(SessionFaults, TheDeadlineDoesNotTakeBackAnAnswerThatIsWhole) {
  request_.deadline_ms = 500;
  const Twin target = twin(1);
  start_at(target);
  client_->level = Level::full;
  tell(session_, finishing(tokens(key(), 0, {10})));
  tell(session_, schema::Done{key(), {}, {}});
  advance(10'000);
  EXPECT_FALSE(client_->done()) << "the client has not read on";
  client_->level = Level::flowing;
  tell(session_, schema::ResumeSession{7});
  EXPECT_EQ(client_->outcome(), Outcome::done);
}

TEST_F(SessionFaults, TheEnginesDeadlineEndsTheRequestToo) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, finishing(tokens(key(), 0, {10}), FinishReason::deadline_exceeded));
  EXPECT_EQ(client_->ids(), (Ids{10}));
  EXPECT_EQ(client_->outcome(), Outcome::cancelled);
  EXPECT_EQ(client_->error(), ErrorCode::deadline_exceeded);
}

TEST_F(SessionFaults, AFailedEngineFailsTheRequest) {
  const Twin target = twin(1);
  start_at(target);
  tell(session_, finishing(tokens(key(), 0, {}), FinishReason::failed));
  EXPECT_FALSE(client_->done()) << "Done says why";
  tell(session_, schema::Done{key(), schema::Refusal::of(fail(ErrorCode::internal, "nan")), {}});
  EXPECT_EQ(client_->outcome(), Outcome::failed);
  EXPECT_EQ(client_->dones[0].error->message, "nan");
}

}  // namespace
}  // namespace outrider::actors
