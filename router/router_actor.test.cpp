#include "router/router_actor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <sstream>

#include "base/limits.hpp"
#include "router/workers.test.hpp"

namespace outrider::router {
namespace {

struct Config : caf::actor_system_config {
  Config() {
    schema::add_messages(*this);
    set("scheduler.policy", caf::atom("testing"));
  }
};

using Replies = std::vector<schema::PlaceReply>;

/// Fake sessions and workers around a real router, in virtual time.
class Router : public ::testing::Test {
 protected:
  Router() { router_ = own(system_.spawn(router_actor, log_)); }
  ~Router() override {
    for (const caf::strong_actor_ptr& actor : actors_) {
      caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
    }
    run();
  }

  void run() { scheduler_.run(); }
  void advance(uint32_t ms) {
    scheduler_.advance_time(std::chrono::milliseconds(ms));
    run();
  }
  template <class Handle>
  Handle own(Handle handle) {
    actors_.push_back(caf::actor_cast<caf::strong_actor_ptr>(handle));
    return handle;
  }
  template <class Handle>
  void kill(const Handle& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    run();
  }

  schema::TargetHandle worker(uint64_t id) {
    const auto asked = asked_;
    const auto leases = leases_;
    const auto known = known_;
    const auto refused = refused_;
    auto handle =
        own(system_.spawn([asked, leases, known, refused]() -> schema::TargetHandle::behavior_type {
          return {[](const schema::SubmitBegin&) {},
                  [](const schema::PromptPart&) {},
                  [](const schema::SubmitEnd&) {},
                  [](const schema::CancelRequest&) {},
                  [](const schema::SetParked&) {},
                  [](const schema::Resend&) {},
                  [](const schema::DoneAck&) {},
                  [asked](const schema::AnnounceAgain&) { ++*asked; },
                  [leases](const schema::DraftLease& lease) { leases->push_back(lease); },
                  [](const schema::DraftReady&) {},
                  [](const schema::DraftHints&) {},
                  [](const schema::DraftResync&) {},
                  [](const schema::DraftClose&) {},
                  [known](const schema::DraftsKnown& message) { known->push_back(message.drafts); },
                  [refused](const schema::WorkerRefused& why) { refused->push_back(why); },
                  [](const schema::LineWanted&) {}};
        }));
    announce(handle, announce_of(id));
    return handle;
  }
  schema::DraftHandle draft(uint64_t id, const std::string& tokenizer = "tokens") {
    const auto refused = refused_;
    auto handle = own(system_.spawn([refused]() -> schema::DraftHandle::behavior_type {
      return {[](const schema::DraftOpen&) {}, [](const schema::DraftCommits&) {},
              [](const schema::DraftClose&) {}, [](const schema::AnnounceAgain&) {},
              [refused](const schema::WorkerRefused& why) { refused->push_back(why); }};
    }));
    schema::Announce message = announce_of(id);
    message.role = schema::Role::draft;
    message.draft = handle;
    message.tokenizer = tokenizer;
    caf::anon_send(router_, message);
    run();
    return handle;
  }
  void ask_draft(const schema::TargetHandle& target, uint64_t session) {
    schema::LeaseDraft ask;
    ask.request = {session, 1};
    ask.target = 1;
    ask.reply_to = target;
    ask.tokenizer = "tokens";
    ask.runs = 1;
    caf::anon_send(router_, ask);
    run();
  }
  void announce(const schema::TargetHandle& handle, schema::Announce message) {
    message.target = handle;
    caf::anon_send(router_, message);
    run();
  }
  void serve(std::vector<schema::Served> models) {
    caf::anon_send(router_, schema::ServesModel{std::move(models)});
    run();
  }
  void heartbeat(const schema::TargetHandle& from, const schema::Load& load) {
    const auto sender = caf::actor_cast<caf::strong_actor_ptr>(from);
    const auto router = caf::actor_cast<caf::strong_actor_ptr>(router_);
    router->enqueue(sender, caf::make_message_id(), caf::make_message(load), nullptr);
    run();
  }
  schema::SessionHandle session() {
    const auto replies = replies_;
    return own(system_.spawn([replies]() -> schema::SessionHandle::behavior_type {
      return {[replies](const schema::PlaceReply& reply) { replies->push_back(reply); },
              [](const schema::Accepted&) {},
              [](const schema::Rejected&) {},
              [](const schema::Leaving&) {},
              [](const schema::Tokens&) {},
              [](const schema::Done&) {},
              [](const schema::CancelSession&) {},
              [](const schema::ResumeSession&) {}};
    }));
  }
  schema::SessionHandle ask(schema::PlaceRequest request) {
    auto from = session();
    request.reply_to = from;
    caf::anon_send(router_, request);
    run();
    return from;
  }
  schema::WorkerList listed() {
    schema::WorkerList listed;
    caf::scoped_actor self(system_);
    self->send(router_, schema::ListWorkers{});
    run();
    self->receive([&](const schema::WorkerList& list) { listed = list; });
    return listed;
  }
  std::vector<schema::WorkerInfo> workers() { return listed().workers; }

  std::ostringstream lines_;
  std::shared_ptr<spdlog::logger> log_ = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_st>(lines_));
  Config config_;
  caf::actor_system system_{config_};
  caf::scheduler::test_coordinator& scheduler_ =
      dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  std::shared_ptr<Replies> replies_ = std::make_shared<Replies>();
  std::shared_ptr<uint32_t> asked_ = std::make_shared<uint32_t>(0);
  std::shared_ptr<std::vector<uint32_t>> known_ = std::make_shared<std::vector<uint32_t>>();
  std::shared_ptr<std::vector<schema::DraftLease>> leases_ =
      std::make_shared<std::vector<schema::DraftLease>>();
  std::shared_ptr<std::vector<schema::WorkerRefused>> refused_ =
      std::make_shared<std::vector<schema::WorkerRefused>>();
  std::vector<caf::strong_actor_ptr> actors_;  ///< Scripted ones too: without a reference they end.
  RouterActor router_;
};

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

TEST_F(Router, ForgetsAWorkerThatGoesDown) {
  const auto target = worker(1);
  EXPECT_EQ(workers().size(), 1u);
  kill(target);
  EXPECT_TRUE(workers().empty());
}

TEST_F(Router, ForgetsAWorkerThatFallsSilentAndTakesItBack) {
  const auto silent = worker(1);
  const auto loud = worker(2);
  for (uint64_t beat = 1; beat <= 8; ++beat) {
    advance(limits::heartbeat_interval_ms);
    heartbeat(loud, load_of(2, beat));
  }
  ASSERT_EQ(workers().size(), 1u);
  EXPECT_EQ(workers()[0].announce.worker, 2u);
  heartbeat(silent, load_of(1, 1));
  EXPECT_EQ(*asked_, 1u) << "an unknown worker is asked who it is";
  announce(silent, announce_of(1));
  EXPECT_EQ(workers().size(), 2u);
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

TEST_F(Router, RefusesADraftOfAnotherTokenizerLoudly) {
  const auto target = worker(1);
  draft(2, "other tokens");
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_EQ(refused_->at(0).refusal.field, "draft");
  EXPECT_NE(lines_.str().find("tokenizer"), std::string::npos) << lines_.str();
  EXPECT_EQ(workers().size(), 1u);
  ask_draft(target, 7);
  EXPECT_EQ(leases_->size(), 0u);
}

TEST_F(Router, RefusesADraftThatCameBeforeTheTargetThatItDoesNotFit) {
  draft(2, "other tokens");
  draft(3);
  EXPECT_TRUE(refused_->empty()) << "no target yet";
  const auto target = worker(1);
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_EQ(refused_->at(0).worker, 2u);
  EXPECT_EQ(workers().size(), 2u);
  kill(target);
  draft(4);
  EXPECT_EQ(refused_->size(), 1u) << "its target is away for a moment";
}

TEST_F(Router, RefusesTargetsThatWouldAnswerOtherwise) {
  worker(1);
  schema::Announce other = announce_of(2);
  other.fingerprint = "other context";
  other.traits = {{"weights", "w"}, {"ctx", "4096"}};
  const auto early = worker(3);
  announce(early, [&] {
    schema::Announce changed = other;
    changed.worker = 3;
    return changed;
  }());
  EXPECT_TRUE(refused_->empty()) << "nobody has said what is served";
  serve({{announce_of(1).model, "fp", {{"weights", "w"}, {"ctx", "8192"}}}});
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_EQ(refused_->at(0).worker, 3u);
  EXPECT_EQ(refused_->at(0).refusal.field, "model");
  EXPECT_THAT(refused_->at(0).refusal.message, testing::EndsWith(": ctx 4096, not 8192"));
  EXPECT_EQ(workers().size(), 1u);

  const auto late = worker(2);
  EXPECT_EQ(workers().size(), 2u) << "a twin";
  announce(late, other);
  EXPECT_EQ(refused_->size(), 2u);
  EXPECT_EQ(workers().size(), 1u);
  other.fingerprint = "fp";
  other.model = "another name";
  announce(late, other);
  ASSERT_EQ(refused_->size(), 3u);
  EXPECT_NE(refused_->at(2).refusal.message.find("--model-name"), std::string::npos)
      << refused_->at(2).refusal.message;
  EXPECT_EQ(listed().refused, 3u);
}

TEST_F(Router, PlacesNothingOnATargetThatHangsAndCountsItOnce) {
  const auto hangs = worker(1);
  schema::Load load = load_of(1, 1);
  load.hangs = true;
  heartbeat(hangs, load);
  load.sequence = 2;
  heartbeat(hangs, load);
  ask(request_of(5));
  EXPECT_TRUE(replies_->empty()) << "it is held";
  EXPECT_EQ(listed().silent, 1u);
  const auto other = worker(2);
  ASSERT_EQ(replies_->size(), 1u);
  EXPECT_EQ(replies_->at(0).target, other);
  load.hangs = false;
  load.sequence = 3;
  heartbeat(hangs, load);
  EXPECT_NE(lines_.str().find("goes on"), std::string::npos) << lines_.str();
}

TEST_F(Router, BeforeAFirstTargetOnlyWhatIsKnownOfItCounts) {
  serve({{.model = "tiny", .traits = {{"tokenizer", "tk"}}}});
  schema::Announce announced = announce_of(1);
  announced.traits = {{"tokenizer", "tk"}, {"ctx", "8192"}};
  const auto target = worker(9);  // Names nothing.
  ASSERT_EQ(refused_->size(), 1u);
  EXPECT_THAT(refused_->at(0).refusal.message, testing::HasSubstr("tokenizer none, not tk"));
  announce(target, announced);
  EXPECT_EQ(workers().size(), 1u);
  announced.worker = 2;
  announced.model = "other";
  announce(target, announced);
  ASSERT_EQ(refused_->size(), 2u);
  EXPECT_THAT(refused_->at(1).refusal.message,
              testing::HasSubstr("it serves \"other\", here it is to be \"tiny\""));
  draft(3);
  EXPECT_EQ(refused_->size(), 2u) << "who was refused says nothing of what drafts have to be";
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
  EXPECT_THAT(refused_->at(0).refusal.message, testing::HasSubstr("those of \"small\""));
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

TEST_F(Router, TellsWhoCameWhoIsSilentAndWhoIsGone) {
  const auto gone = worker(1);
  worker(2);
  announce(gone, announce_of(1));
  const std::string joined = lines_.str();
  EXPECT_EQ(std::count(joined.begin(), joined.end(), '\n'), 2) << joined;
  EXPECT_NE(joined.find(" joined: "), std::string::npos) << joined;
  kill(gone);
  EXPECT_NE(lines_.str().find(" is gone"), std::string::npos) << lines_.str();
  scheduler_.advance_time(std::chrono::milliseconds(limits::heartbeat_timeout_ms + 1000));
  run();
  EXPECT_NE(lines_.str().find(" is silent"), std::string::npos) << lines_.str();
  EXPECT_EQ(listed().joined, 2u);
  EXPECT_EQ(listed().gone, 1u);
  EXPECT_EQ(listed().silent, 1u);
  EXPECT_EQ(listed().refused, 0u);
}

TEST_F(Router, AWorkerThatStopsInOrderIsNoWarning) {
  const auto target = worker(1);
  announce(target, announce_of(1));
  caf::anon_send_exit(target, caf::exit_reason::user_shutdown);
  run();
  EXPECT_NE(lines_.str().find("[info]  has stopped"), std::string::npos) << lines_.str();
  EXPECT_EQ(lines_.str().find("warning]"), std::string::npos) << lines_.str();
  EXPECT_EQ(listed().gone, 1u);
}

}  // namespace
}  // namespace outrider::router
