#include "actors/target_actor.hpp"

#include "actors/fake_engine.test.hpp"
#include "actors/world.test.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

using Heard =
    std::variant<schema::Accepted, schema::Rejected, schema::Leaving, schema::Tokens, schema::Done>;

/// A target with a fake engine between a scripted router and scripted sessions.
class Target : public World {
 protected:
  Target() {
    target_ = spawn_target(1);
    session_ = session();
    run();
    request_.prompt = {1, 2, 3};
    request_.stop.max_tokens = 3;
  }

  /// It is to find so many routers.
  TargetActor spawn_target(size_t routers, uint32_t draft_depth = 0) {
    return own(system_.spawn(target_actor, setup_of(routers, draft_depth)));
  }
  TargetSetup setup_of(size_t routers, uint32_t draft_depth = 0) {
    TargetSetup setup;
    setup.announce.worker = 9;
    setup.announce.incarnation = 4;
    setup.announce.name = "target-9";
    setup.announce.model = "tiny";
    setup.announce.context_tokens = 64;
    setup.router = router_;
    setup.routers = routers;
    setup.drafts.depth_max = draft_depth;
    setup.drafts.duty.always = true;
    setup.lines.clock = std::make_shared<SteadyClock>();
    setup.lines.threads = system_threads();
    setup.lines.dial = [dialled = dialled_](
                           const std::string&,
                           const LineName& line) -> Result<std::unique_ptr<link::TensorLink>> {
      dialled->push_back(line);
      return fail(ErrorCode::unavailable, "nobody is there");
    };
    setup.hangs_after = std::chrono::seconds(2);
    setup.log = log_;
    setup.engine = [this](EngineListener listener) {
      auto engine = std::make_unique<ManualEngine>(std::move(listener), engine_);
      port_ = engine.get();
      return engine;
    };
    return setup;
  }
  void refuse(const TargetActor& target, const schema::RouterHandle& router) {
    caf::actor_cast<caf::strong_actor_ptr>(target)->enqueue(
        caf::actor_cast<caf::strong_actor_ptr>(router), caf::make_message_id(),
        caf::make_message(schema::WorkerRefused{
            9, schema::Refusal::of(fail(ErrorCode::invalid_argument, "odd"))}),
        nullptr);
    run();
  }
  schema::SessionHandle session() {
    const auto heard = heard_;
    const auto note = [heard](auto message) { heard->emplace_back(std::move(message)); };
    return own(system_.spawn([note]() -> schema::SessionHandle::behavior_type {
      return {[](const schema::PlaceReply&) {},
              [note](const schema::Accepted& m) { note(m); },
              [note](const schema::Rejected& m) { note(m); },
              [note](const schema::Leaving& m) { note(m); },
              [note](const schema::Tokens& m) { note(m); },
              [note](const schema::Done& m) { note(m); },
              [](const schema::CancelSession&) {},
              [](const schema::ResumeSession&) {}};
    }));
  }
  template <class Handle, class Message>
  void from(const Handle& sender, Message message) {
    const auto target = caf::actor_cast<caf::strong_actor_ptr>(target_);
    target->enqueue(caf::actor_cast<caf::strong_actor_ptr>(sender), caf::make_message_id(),
                    caf::make_message(std::move(message)), nullptr);
    run();
  }
  template <class Message>
  void from_session(Message message) {
    from(session_, std::move(message));
  }
  void begin(RequestKey key, uint32_t parts = 1) {
    from_session(schema::SubmitBegin{key, session_, schema::to_wire(request_),
                                     static_cast<uint32_t>(request_.prompt.size()),
                                     static_cast<uint32_t>(request_.committed.size()), parts});
  }
  void submit(RequestKey key) {
    begin(key);
    std::vector<int32_t> ids = request_.prompt;
    ids.insert(ids.end(), request_.committed.begin(), request_.committed.end());
    from_session(schema::PromptPart{key, 0, ids});
    from_session(schema::SubmitEnd{key});
  }
  void step() {
    port_->step();
    run();
  }
  template <class Message>
  std::vector<Message> all() const {
    std::vector<Message> found;
    for (const Heard& message : *heard_) {
      if (const auto* match = std::get_if<Message>(&message)) found.push_back(*match);
    }
    return found;
  }
  TimePoint now() {
    return std::chrono::duration_cast<TimePoint>(scheduler_.clock().now().time_since_epoch());
  }
  /// It says how loaded it is.
  bool is_alive() {
    const size_t before = router_log_->loads.size();
    advance(limits::heartbeat_interval_ms);
    return router_log_->loads.size() != before;
  }
  ErrorCode rejected() const {
    const auto refusals = all<schema::Rejected>();
    return refusals.empty() ? ErrorCode{} : refusals.back().refusal.error_code();
  }

  std::shared_ptr<FakeEngine> engine_ = std::make_shared<FakeEngine>();
  ManualEngine* port_ = nullptr;
  std::shared_ptr<std::vector<Heard>> heard_ = std::make_shared<std::vector<Heard>>();
  /// By the thread of one line; read when the target is gone.
  std::shared_ptr<std::vector<LineName>> dialled_ = std::make_shared<std::vector<LineName>>();
  TargetActor target_;
  schema::SessionHandle session_;
  GenerationRequest request_;
  const RequestKey key_{5, 1};
};

TEST_F(Target, AnnouncesItselfAndItsLoad) {
  ASSERT_EQ(router_log_->announces.size(), 1u);
  EXPECT_EQ(router_log_->announces[0].target, caf::actor_cast<schema::TargetHandle>(target_));
  submit(key_);
  advance(limits::heartbeat_interval_ms);
  const schema::Load load = router_log_->loads.back();
  EXPECT_EQ(load.worker, 9u);
  EXPECT_EQ(load.incarnation, 4u);
  EXPECT_EQ(load.sequence, router_log_->loads.size());
  EXPECT_EQ(load.running, 1u);
  EXPECT_EQ(load.queued_rows, 3u + 3u) << "three of the prompt, three to come";
  tell(target_, schema::AnnounceAgain{9});
  EXPECT_EQ(router_log_->announces.size(), 2u);
}

TEST_F(Target, ServesARequestAndForgetsItWhenAcknowledged) {
  submit(key_);
  EXPECT_EQ(all<schema::Accepted>().size(), 1u);
  for (int i = 0; i < 3; ++i) step();
  const auto tokens = all<schema::Tokens>();
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[2].first_index, 2u);
  EXPECT_EQ(tokens[2].finish.finish().reason, FinishReason::length);
  ASSERT_EQ(all<schema::Done>().size(), 1u);
  from_session(schema::Resend{key_, 0, 0, 0});
  EXPECT_EQ(all<schema::Tokens>().back().tokens.ids.size(), 3u) << "kept until acknowledged";
  from_session(schema::DoneAck{key_});
  from_session(schema::Resend{key_, 0, 0, 0});
  EXPECT_EQ(rejected(), ErrorCode::not_found);
}

TEST_F(Target, ContinuesAfterCommittedTokensWithAbsoluteIndices) {
  request_.committed = {fake_token(request_, 0, 0), fake_token(request_, 0, 1)};
  submit(key_);
  step();
  const auto tokens = all<schema::Tokens>();
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens[0].first_index, 2u);
  EXPECT_EQ(tokens[0].tokens.ids, std::vector<int32_t>{fake_token(request_, 0, 2)});
  EXPECT_EQ(all<schema::Done>().size(), 1u);
}

TEST_F(Target, SendsAnyGapAgain) {
  submit(key_);
  step();
  step();
  from_session(schema::Resend{key_, 0, 1, 0});
  const auto tokens = all<schema::Tokens>();
  EXPECT_EQ(tokens.back().first_index, 1u);
  EXPECT_EQ(tokens.back().tokens.ids.size(), 1u);
  from_session(schema::Resend{key_, 0, 2, 0});
  EXPECT_EQ(all<schema::Accepted>().size(), 2u) << "nothing is missing: it says that it lives";
}

TEST_F(Target, RejectsAPromptWithALostPart) {
  begin(key_, 2);
  from_session(schema::PromptPart{key_, 1, {2, 3}});
  EXPECT_EQ(rejected(), ErrorCode::unavailable);
  begin({5, 2}, 2);
  from_session(schema::PromptPart{{5, 2}, 0, {1, 2}});
  from_session(schema::SubmitEnd{{5, 2}});
  EXPECT_EQ(all<schema::Rejected>().size(), 2u);
  EXPECT_TRUE(engine_->idle());
}

TEST_F(Target, RejectsMoreTokensThanAnnounced) {
  begin(key_);
  from_session(schema::PromptPart{key_, 0, {1, 2, 3, 4}});
  EXPECT_EQ(rejected(), ErrorCode::unavailable);
}

TEST_F(Target, RejectsAPromptLongerThanTheContext) {
  request_.prompt.assign(65, 1);
  begin(key_);
  EXPECT_EQ(rejected(), ErrorCode::too_large);
}

TEST_F(Target, PassesTheEnginesRefusalOn) {
  request_.prompt = {-1};
  submit(key_);
  EXPECT_EQ(rejected(), ErrorCode::invalid_argument);
  EXPECT_TRUE(all<schema::Accepted>().empty());
  engine_->refuse_next(1);
  request_.prompt = {1};
  submit({5, 2});
  EXPECT_EQ(rejected(), ErrorCode::overloaded);
  EXPECT_GT(all<schema::Rejected>().back().refusal.retry_after_ms, 0u);
}

TEST_F(Target, ACancelFreesTheRequestWithinOneStep) {
  submit(key_);
  step();
  from_session(schema::CancelRequest{key_});
  step();
  EXPECT_FALSE(engine_->holds(key_));
  engine_->check_conservation();
  EXPECT_EQ(all<schema::Tokens>().size(), 1u) << "nobody listens any more";
  EXPECT_TRUE(all<schema::Done>().empty());
}

TEST_F(Target, AnEarlyAcknowledgementIsACancel) {
  submit(key_);
  step();
  from_session(schema::DoneAck{key_});
  submit(key_);
  step();
  EXPECT_FALSE(engine_->holds(key_));
  submit(key_);
  step();
  EXPECT_TRUE(engine_->holds(key_));
}

TEST_F(Target, ADeadSessionIsACancel) {
  submit(key_);
  step();
  kill(session_);
  step();
  EXPECT_FALSE(engine_->holds(key_));
}

TEST_F(Target, ParksAndResumesARow) {
  submit(key_);
  from_session(schema::SetParked{key_, true});
  step();
  EXPECT_TRUE(all<schema::Tokens>().empty());
  from_session(schema::SetParked{key_, false});
  step();
  EXPECT_EQ(all<schema::Tokens>().size(), 1u);
}

TEST_F(Target, RepeatedSubmitsAreTheSameRequest) {
  submit(key_);
  submit(key_);
  step();
  EXPECT_EQ(all<schema::Tokens>().size(), 1u);
  EXPECT_EQ(all<schema::Rejected>().size(), 0u);
}

TEST_F(Target, KeepsABoundedNumberOfFinishedRequests) {
  request_.stop.max_tokens = 1;
  const uint32_t count = limits::finished_requests_kept + 1;
  for (uint32_t generation = 1; generation <= count; ++generation) submit({5, generation});
  step();
  EXPECT_EQ(all<schema::Done>().size(), count);
  from_session(schema::Resend{{5, 1}, 0, 0, 0});
  EXPECT_EQ(rejected(), ErrorCode::not_found) << "the oldest was forgotten";
  from_session(schema::Resend{{5, count}, 0, 0, 0});
  EXPECT_EQ(all<schema::Done>().size(), count + 1);
}

TEST_F(Target, AnnouncesItselfToEachRouterThatIsFound) {
  ASSERT_EQ(router_log_->announces.size(), 1u);
  const auto log = std::make_shared<RouterLog>();
  const auto other = own(system_.spawn(scripted_router, log));
  tell(target_, schema::RouterFound{other});
  ASSERT_EQ(log->announces.size(), 1u);
  EXPECT_EQ(log->announces[0].worker, 9u);
  EXPECT_EQ(log->announces[0].incarnation, 4u);
  EXPECT_EQ(log->announces[0].target, caf::actor_cast<schema::TargetHandle>(target_));
  EXPECT_EQ(log->loads.size(), 1u) << "what it did before is known at once";
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(log->loads.size(), 2u);
}

TEST_F(Target, ReportsToAllRoutersUntilTheyAreGone) {
  const auto log = std::make_shared<RouterLog>();
  const auto other = own(system_.spawn(scripted_router, log));
  tell(target_, schema::RouterFound{other});
  const size_t before = router_log_->loads.size();
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(router_log_->loads.size(), before + 1);
  EXPECT_EQ(log->loads.size(), 2u);
  kill(router_);
  EXPECT_EQ(log->announces.size(), 2u) << "it leases the drafts from now on";
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(router_log_->loads.size(), before + 1);
  EXPECT_EQ(log->loads.size(), 3u);
  kill(other);
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(log->loads.size(), 3u);
}

TEST_F(Target, AsksTheNextRouterForDraftsWhenTheFirstIsGone) {
  const auto log = std::make_shared<RouterLog>();
  const auto other = own(system_.spawn(scripted_router, log));
  target_ = spawn_target(2, 4);
  tell(target_, schema::RouterFound{other});
  submit(key_);
  ASSERT_EQ(router_log_->asks.size(), 1u);
  EXPECT_TRUE(log->asks.empty());
  kill(router_);
  ASSERT_EQ(log->asks.size(), 1u);
  EXPECT_EQ(log->asks[0].request, key_);
}

TEST_F(Target, AsksARouterThatHasForgottenItForDraftsAgain) {
  const auto log = std::make_shared<RouterLog>();
  const auto other = own(system_.spawn(scripted_router, log));
  target_ = spawn_target(2, 4);
  tell(target_, schema::RouterFound{other});
  submit(key_);
  ASSERT_EQ(router_log_->asks.size(), 1u);
  tell(target_, schema::DraftLease{key_, 3, 100, {}});
  from(router_, schema::AnnounceAgain{9});
  ASSERT_EQ(router_log_->asks.size(), 2u);
  EXPECT_EQ(router_log_->asks[1].request, key_);
  EXPECT_EQ(router_log_->asks[1].generation, 3u);
  EXPECT_EQ(router_log_->asks[1].reply_to, caf::actor_cast<schema::TargetHandle>(target_));
  from(other, schema::AnnounceAgain{9});
  EXPECT_EQ(router_log_->asks.size(), 2u) << "it leases nothing";
  EXPECT_TRUE(log->asks.empty());
}

TEST_F(Target, GivesADraftsPlaceBackWhenTheRequestIsCancelledNotWhenItsEngineHasSeenThat) {
  target_ = spawn_target(1, 4);
  submit(key_);
  tell(target_, schema::DraftLease{key_, 3, 100, {}});
  ASSERT_TRUE(router_log_->ends.empty());
  from_session(schema::CancelRequest{key_});
  ASSERT_EQ(router_log_->ends.size(), 1u);
  EXPECT_EQ(router_log_->ends[0].request, key_);
  step();
  EXPECT_EQ(router_log_->ends.size(), 1u) << "once";
}

TEST_F(Target, DoesWithoutARouterThatRefusesItUntilAllDo) {
  const auto second = spawn_target(2);
  const auto log = std::make_shared<RouterLog>();
  const auto other = own(system_.spawn(scripted_router, log));
  refuse(second, router_);
  EXPECT_NE(lines_.str().find("is refused by a router: odd"), std::string::npos) << lines_.str();
  tell(second, schema::RouterFound{other});
  EXPECT_EQ(log->announces.size(), 1u) << "the other has not said a word yet";
  const size_t before = log->loads.size();
  refuse(second, router_);
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(log->loads.size(), before + 1) << "the same router, again";
  tell(second, schema::RouterFound{router_});
  const size_t last = log->loads.size();
  refuse(second, other);
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(lines_.str().find("stops"), std::string::npos) << "the first may have changed its mind";
  refuse(second, router_);
  EXPECT_NE(lines_.str().find("and stops: odd"), std::string::npos) << lines_.str();
  EXPECT_EQ(log->loads.size(), last);
}

TEST_F(Target, CountsARouterThatTwoGatesLeadToForBoth) {
  const auto other = own(system_.spawn(scripted_router, std::make_shared<RouterLog>()));
  TargetSetup elsewhere = setup_of(2);
  elsewhere.router = schema::RouterHandle();
  const auto second = own(system_.spawn(target_actor, elsewhere));
  tell(second, schema::RouterFound{other, "127.0.0.1:7000"});
  refuse(second, other);
  EXPECT_EQ(lines_.str().find("stops"), std::string::npos) << "the second gate may lead elsewhere";
  tell(second, schema::RouterFound{other, "localhost:7000"});
  refuse(second, other);
  EXPECT_NE(lines_.str().find("refused by the router at"), std::string::npos) << lines_.str();
  EXPECT_NE(lines_.str().find("and stops: odd"), std::string::npos) << lines_.str();
}

TEST_F(Target, StopsLoudlyWhenItIsRefused) {
  refuse(target_, router_);
  EXPECT_NE(lines_.str().find("target-9 is refused by a router, and stops: odd"), std::string::npos)
      << lines_.str();
  const size_t before = router_log_->loads.size();
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(router_log_->loads.size(), before);
}

TEST_F(Target, OutlivesWhatItDoesNotUnderstandAndWhoDoesNotUnderstandIt) {
  const auto any = caf::actor_cast<caf::actor>(target_);
  for (int i = 0; i < 2; ++i) {
    tell(any, caf::make_error(caf::sec::unexpected_message));
    tell(any, std::string("of another version"));
  }
  EXPECT_NE(lines_.str().find("target-9: a message was not understood"), std::string::npos);
  EXPECT_EQ(lines_.str().find('\n'), lines_.str().size() - 1) << "told once: " << lines_.str();
  submit(key_);
  step();
  EXPECT_FALSE(all<schema::Accepted>().empty());
}

TEST_F(Target, LeavesWhenAllItsRequestsHaveGoneOnElsewhere) {
  submit(key_);
  const RequestKey half{6, 1};
  begin(half);
  step();
  tell(target_, LeaveNow{});
  EXPECT_TRUE(router_log_->loads.back().leaving) << "at once";
  ASSERT_EQ(all<schema::Leaving>().size(), 1u);
  EXPECT_EQ(all<schema::Leaving>()[0].key, key_);
  ASSERT_EQ(all<schema::Rejected>().size(), 1u);
  EXPECT_EQ(all<schema::Rejected>()[0].key, half);
  EXPECT_EQ(rejected(), ErrorCode::unavailable);
  begin({7, 1});
  EXPECT_EQ(all<schema::Rejected>().back().key, (RequestKey{7, 1}));
  EXPECT_EQ(rejected(), ErrorCode::unavailable);
  advance(1'000);
  EXPECT_TRUE(is_alive()) << "its request is still there";
  from_session(schema::CancelRequest{key_});
  step();
  advance(1'000);
  EXPECT_FALSE(is_alive());
}

TEST_F(Target, LeavesAtOnceWithoutRequests) {
  tell(target_, LeaveNow{});
  EXPECT_FALSE(is_alive());
}

TEST_F(Target, AnswersLinesOnlyWhenItLeaves) {
  tell(target_, schema::LineWanted{{1}, router_});
  submit(key_);
  tell(target_, LeaveNow{});
  tell(target_, schema::LineWanted{{2}, router_});
  advance(limits::drain_timeout_ms + 100);
  ASSERT_FALSE(is_alive());
  EXPECT_EQ(*dialled_, std::vector<LineName>{{2}});
}

TEST_F(Target, LeavesInTheEndWhateverStays) {
  submit(key_);
  tell(target_, LeaveNow{});
  advance(limits::drain_timeout_ms - 1'000);
  EXPECT_TRUE(is_alive()) << "it may end here";
  advance(1'100);
  EXPECT_FALSE(is_alive());
  EXPECT_NE(lines_.str().find("1 of its requests have neither"), std::string::npos) << lines_.str();
}

TEST_F(Target, WhatAnEngineThatHangsHasGoesOnElsewhere) {
  submit(key_);
  step();
  port_->step_began = now();
  for (int i = 0; i < 4; ++i) advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(all<schema::Rejected>().size(), 0u);
  for (int i = 0; i < 2; ++i) advance(limits::heartbeat_interval_ms);
  ASSERT_EQ(all<schema::Rejected>().size(), 1u);
  EXPECT_EQ(rejected(), ErrorCode::unavailable);
  EXPECT_TRUE(router_log_->loads.back().hangs);
  submit({8, 1});
  EXPECT_EQ(all<schema::Rejected>().size(), 2u) << "it takes none";
  from_session(schema::Resend{key_});
  EXPECT_EQ(all<schema::Rejected>().size(), 3u);

  port_->step_began = TimePoint{0};
  advance(limits::heartbeat_interval_ms);
  EXPECT_FALSE(router_log_->loads.back().hangs);
  submit({9, 1});
  EXPECT_EQ(all<schema::Rejected>().size(), 3u);
}

TEST_F(Target, AStepThatWasStoppedWithAllElseHangsNot) {
  submit(key_);
  port_->step_began = now();
  advance(10);
  port_->step_began = now() - std::chrono::seconds(60);  // Nobody ran meanwhile.
  advance(limits::heartbeat_interval_ms);
  port_->step_began = now();
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(all<schema::Rejected>().size(), 0u);
}

}  // namespace
}  // namespace outrider::actors
