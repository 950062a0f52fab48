#include "actors/draft_actor.hpp"

#include <sstream>

#include "actors/world.test.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

/// Remembers what its actor gives it, and says what the test says.
struct Port final : DraftPort {
  void give(DraftInput input) override {
    if (std::holds_alternative<DraftBeat>(input)) {
      ++beats;
    } else {
      given.push_back(std::move(input));
    }
  }
  EngineSnapshot snapshot() const override { return {}; }
  uint32_t runs() const override { return drafting; }
  std::vector<DraftInput> given;
  uint32_t beats = 0;
  uint32_t drafting = 3;
};

struct Told {
  std::vector<schema::DraftReady> readies;
  std::vector<schema::DraftHints> hints;
  std::vector<schema::DraftResync> resyncs;
  std::vector<schema::DraftClose> closes;
};

schema::TargetHandle::behavior_type listening_target(std::shared_ptr<Told> told) {
  return {[](const schema::SubmitBegin&) {},
          [](const schema::PromptPart&) {},
          [](const schema::SubmitEnd&) {},
          [](const schema::CancelRequest&) {},
          [](const schema::SetParked&) {},
          [](const schema::Resend&) {},
          [](const schema::DoneAck&) {},
          [](const schema::AnnounceAgain&) {},
          [](const schema::DraftLease&) {},
          [told](const schema::DraftReady& m) { told->readies.push_back(m); },
          [told](const schema::DraftHints& m) { told->hints.push_back(m); },
          [told](const schema::DraftResync& m) { told->resyncs.push_back(m); },
          [told](const schema::DraftClose& m) { told->closes.push_back(m); },
          [](const schema::DraftsKnown&) {},
          [](const schema::WorkerRefused&) {},
          [](const schema::LineWanted&) {}};
}

class DraftWorld : public World {
 protected:
  DraftWorld() {
    DraftSetup setup;
    setup.announce.worker = 5;
    setup.announce.name = "draft-0";
    setup.router = router_;
    setup.log = log_;
    setup.engine = [this](DraftListener listener) {
      auto port = std::make_unique<Port>();
      port_ = port.get();
      listener_ = std::move(listener);
      return port;
    };
    draft_ = own(system_.spawn(draft_actor, std::move(setup)));
    run();
  }
  ~DraftWorld() override { draft_ = nullptr; }

  schema::TargetHandle open(uint64_t target, std::shared_ptr<Told> told) {
    auto handle = own(system_.spawn(listening_target, told));
    schema::DraftOpen message;
    message.key = key_of(target);
    message.target = handle;
    tell(draft_, message);
    return handle;
  }
  static schema::DraftKey key_of(uint64_t target) { return {target, {1, 1}, 0, 1}; }
  void say(DraftReplies replies) {
    listener_(std::move(replies));
    run();
  }

  Port* port_ = nullptr;
  DraftListener listener_;
  DraftActor draft_;
};

TEST_F(DraftWorld, AnnouncesItselfAsADraftAndBeats) {
  ASSERT_EQ(router_log_->announces.size(), 1u);
  EXPECT_EQ(router_log_->announces[0].role, schema::Role::draft);
  EXPECT_EQ(router_log_->announces[0].draft, caf::actor_cast<schema::DraftHandle>(draft_));
  const size_t before = router_log_->loads.size();
  advance(limits::heartbeat_interval_ms);
  ASSERT_EQ(router_log_->loads.size(), before + 1);
  EXPECT_EQ(router_log_->loads.back().worker, 5u);
  tell(draft_, schema::AnnounceAgain{5});
  EXPECT_EQ(router_log_->announces.size(), 2u);
}

TEST_F(DraftWorld, PassesMessagesBothWaysAndBatchesHintsByTarget) {
  const auto one = std::make_shared<Told>();
  const auto two = std::make_shared<Told>();
  open(1, one);
  open(2, two);
  tell(draft_, schema::DraftCommits{{{key_of(1), 0, {1, 2}, 4, 0}}});
  tell(draft_, schema::DraftClose{key_of(2), schema::DraftEnd::finished});
  ASSERT_EQ(port_->given.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<schema::DraftCommits>(port_->given[2]));
  EXPECT_TRUE(std::holds_alternative<schema::DraftClose>(port_->given[3]));
  DraftReplies replies;
  replies.readies = {{key_of(1), 0}};
  replies.resyncs = {{key_of(2), 3}};
  replies.closes = {{key_of(2), schema::DraftEnd::displaced}, {key_of(9), {}}};
  for (uint32_t i = 0; i < limits::draft_entries_max + 1; ++i) {
    replies.hints.push_back({key_of(1), i, 0, {{-1, 7, 200}}});
  }
  replies.hints.push_back({key_of(2), 9, 0, {}});
  say(std::move(replies));
  EXPECT_EQ(one->readies.size(), 1u);
  EXPECT_EQ(two->resyncs.at(0).from_length, 3u);
  EXPECT_EQ(two->closes.size(), 1u);
  ASSERT_EQ(one->hints.size(), 2u) << "no message is over its bound";
  EXPECT_EQ(one->hints[0].hints.size(), limits::draft_entries_max);
  EXPECT_EQ(one->hints[1].hints.size(), 1u);
  EXPECT_EQ(two->hints.size(), 1u);
}

TEST_F(DraftWorld, ForgetsATargetThatDies) {
  const auto told = std::make_shared<Told>();
  const auto target = open(1, told);
  kill(target);
  ASSERT_EQ(port_->given.size(), 2u);
  EXPECT_EQ(std::get<TargetGone>(port_->given[1]).target, 1u);
}

TEST_F(DraftWorld, ForgetsATargetWhoseSuccessorComesBeforeItsDeathIsKnown) {
  const auto told = std::make_shared<Told>();
  open(1, told);
  open(1, told);
  ASSERT_EQ(port_->given.size(), 3u);
  EXPECT_EQ(std::get<TargetGone>(port_->given[1]).target, 1u);
  EXPECT_TRUE(std::holds_alternative<schema::DraftOpen>(port_->given[2]));
}

TEST_F(DraftWorld, ItsRunsHearOfEachHeartbeat) {
  const uint32_t before = port_->beats;
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(port_->beats, before + 1);
  port_->drafting = 0;  // Nothing could be forgotten.
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(port_->beats, before + 1);
}

TEST_F(DraftWorld, RemembersABoundedNumberOfTargets) {
  const auto told = std::make_shared<Told>();
  for (uint64_t target = 1; target <= limits::draft_targets_max; ++target) open(target, told);
  open(1, told);  // Anew, so that it is not the oldest.
  port_->given.clear();
  open(limits::draft_targets_max + 1, told);
  ASSERT_EQ(port_->given.size(), 2u);
  EXPECT_EQ(std::get<TargetGone>(port_->given[1]).target, 2u);
}

TEST_F(DraftWorld, TellsOnceThatItsModelCannotGoOn) {
  for (int i = 0; i < 2; ++i) {
    auto replies = std::make_shared<DraftReplies>();
    replies->error = "the model gave a logit that is not a finite number";
    EXPECT_FALSE(replies->empty());
    tell(draft_, DraftReport{replies});
  }
  const std::string told = lines_.str();
  const auto at = told.find("draft-0 cannot draft: the model gave a logit");
  ASSERT_NE(at, std::string::npos) << told;
  EXPECT_EQ(told.find("cannot draft", at + 20), std::string::npos) << told;
}

TEST_F(DraftWorld, StopsLoudlyWhenItIsRefused) {
  caf::actor_cast<caf::strong_actor_ptr>(draft_)->enqueue(
      caf::actor_cast<caf::strong_actor_ptr>(router_), caf::make_message_id(),
      caf::make_message(schema::WorkerRefused{
          5, schema::Refusal::of(fail(ErrorCode::invalid_argument, "another tokenizer"))}),
      nullptr);
  run();
  EXPECT_NE(lines_.str().find("draft-0 is refused by a router, and stops: another tokenizer"),
            std::string::npos);
  const size_t before = router_log_->loads.size();
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(router_log_->loads.size(), before);
}

TEST_F(DraftWorld, AnnouncesItselfToEachRouterThatIsFound) {
  ASSERT_EQ(router_log_->announces.size(), 1u);
  tell(draft_, schema::RouterFound{router_});
  ASSERT_EQ(router_log_->announces.size(), 2u);
  EXPECT_EQ(router_log_->announces[1].worker, 5u);
  EXPECT_EQ(router_log_->announces[1].incarnation, router_log_->announces[0].incarnation);
}

TEST_F(DraftWorld, OutlivesATargetThatDoesNotUnderstandIt) {
  tell(caf::actor_cast<caf::actor>(draft_), caf::make_error(caf::sec::unexpected_message));
  EXPECT_NE(lines_.str().find("draft-0: a message was not understood"), std::string::npos);
  const size_t before = router_log_->loads.size();
  advance(limits::heartbeat_interval_ms);
  EXPECT_EQ(router_log_->loads.size(), before + 1);
}

}  // namespace
}  // namespace outrider::actors
