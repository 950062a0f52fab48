#include "actors/fake_engine.test.hpp"
#include "actors/world.test.hpp"
#include "base/limits.hpp"
#include "base/philox.hpp"

/// Hundreds of sessions under random cancels, gone and slow clients, killed and frozen targets,
/// lost messages and a moody router. Whatever happens, each ends exactly once and with the right
/// tokens.
namespace outrider::actors {
namespace {

struct Faults {
  float router_silent = 0.05f;
  float router_refuses = 0.1f;
  float message_lost = 0.03f;
};

/// Passes everything to a target, except what gets lost.
schema::TargetHandle::behavior_type lossy_wire(schema::TargetHandle::pointer self,
                                               TargetActor target, std::shared_ptr<Random> random,
                                               std::shared_ptr<Faults> faults,
                                               std::shared_ptr<bool> frozen) {
  const auto pass = [self, target, random, faults, frozen](auto message) {
    if (*frozen || random->chance(faults->message_lost)) return;
    const auto to = caf::actor_cast<caf::strong_actor_ptr>(target);
    to->enqueue(self->current_sender(), caf::make_message_id(),
                caf::make_message(std::move(message)), nullptr);
  };
  return {[pass](const schema::SubmitBegin& m) { pass(m); },
          [pass](const schema::PromptPart& m) { pass(m); },
          [pass](const schema::SubmitEnd& m) { pass(m); },
          [pass](const schema::CancelRequest& m) { pass(m); },
          [pass](const schema::SetParked& m) { pass(m); },
          [pass](const schema::Resend& m) { pass(m); },
          [pass](const schema::DoneAck& m) { pass(m); },
          [pass](const schema::AnnounceAgain& m) { pass(m); },
          [pass](const schema::DraftLease& m) { pass(m); },
          [pass](const schema::DraftReady& m) { pass(m); },
          [pass](const schema::DraftHints& m) { pass(m); },
          [pass](const schema::DraftResync& m) { pass(m); },
          [pass](const schema::DraftClose& m) { pass(m); },
          [pass](const schema::DraftsKnown& m) { pass(m); },
          [pass](const schema::WorkerRefused& m) { pass(m); },
          [pass](const schema::LineWanted& m) { pass(m); }};
}

struct Node {
  uint64_t worker = 0;
  TargetActor target;
  schema::TargetHandle wire;
  std::shared_ptr<FakeEngine> engine;
  ManualEngine* port = nullptr;
  std::shared_ptr<bool> frozen = std::make_shared<bool>(false);  ///< Hears and does nothing.
};
using Fleet = std::vector<Node>;

schema::RouterHandle::behavior_type moody_router(schema::RouterHandle::pointer self,
                                                 std::shared_ptr<Fleet> fleet,
                                                 std::shared_ptr<Random> random,
                                                 std::shared_ptr<Faults> faults) {
  return {[self, fleet, random, faults](const schema::PlaceRequest& request) {
            if (random->chance(faults->router_silent)) return;
            schema::PlaceReply reply;
            reply.key = request.key;
            if (random->chance(faults->router_refuses)) {
              reply.refusal = schema::Refusal::of(fail(ErrorCode::unavailable, "in a mood"));
            } else {
              const Node& node = fleet->at(random->below(static_cast<uint32_t>(fleet->size())));
              reply.target = node.wire;
              reply.worker = node.worker;
              reply.fingerprint = "fp";
            }
            self->send(request.reply_to, reply);
          },
          [](const schema::Announce&) {},
          [](const schema::Load&) {},
          [](const schema::LeaseDraft&) {},
          [](const schema::EndLease&) {},
          [](const schema::ServesModel&) {},
          [](const schema::ListWorkers&) { return schema::WorkerList{}; }};
}

class Chaos : public World, public ::testing::WithParamInterface<uint64_t> {
 protected:
  struct Client {
    uint64_t session = 0;
    GenerationRequest request;
    std::shared_ptr<Collector> stream = std::make_shared<Collector>();
  };

  Chaos() {
    moody_ = own(system_.spawn(moody_router, fleet_, random_, faults_));
    desk_ = own(system_.spawn(front_desk, FrontDeskSetup{moody_, {{"tiny", ""}}}));
    for (int i = 0; i < 3; ++i) add_node();
  }

  void add_node() {
    Node node;
    node.worker = ++workers_;
    node.engine = std::make_shared<FakeEngine>();
    TargetSetup setup;
    setup.announce.worker = node.worker;
    setup.announce.context_tokens = 1u << 20;
    setup.router = router_;
    setup.engine = [&node](EngineListener listener) {
      auto port = std::make_unique<ManualEngine>(std::move(listener), node.engine);
      node.port = port.get();
      return port;
    };
    node.target = own(system_.spawn(target_actor, setup));
    node.wire = own(system_.spawn(lossy_wire, node.target, random_, faults_, node.frozen));
    run();
    fleet_->push_back(std::move(node));
  }
  Node& any_node() { return fleet_->at(random_->below(static_cast<uint32_t>(fleet_->size()))); }
  void kill_node() {
    const Node node = any_node();
    std::erase_if(*fleet_, [&](const Node& other) { return other.worker == node.worker; });
    add_node();
    kill(node.target);
    kill(node.wire);
  }

  void open() {
    Client& client = clients_.emplace_back();
    client.session = clients_.size();
    client.request.prompt.assign(1 + random_->below(20), static_cast<int32_t>(client.session));
    client.request.stop.max_tokens = 1 + random_->below(40);
    client.request.choices = random_->chance(0.2f) ? 1 + random_->below(4) : 1;
    client.request.sampling.seed = random_->next_u64();
    if (random_->chance(0.05f)) client.request.deadline_ms = 1 + random_->below(5000);
    if (random_->chance(0.02f)) client.request.prompt[0] = -1;
    tell(desk_,
         schema::OpenSession{client.session, "tiny",
                             std::make_shared<GenerationRequest>(client.request), client.stream});
  }
  Client& any_client() { return clients_[random_->below(static_cast<uint32_t>(clients_.size()))]; }
  void resume(Client& client) {
    client.stream->level = Level::flowing;
    tell(desk_, schema::ResumeSession{client.session});
  }
  void step_all() {
    for (Node& node : *fleet_) {
      if (!*node.frozen) node.port->step();
    }
    run();
  }

  void live() {
    const uint32_t dice = random_->below(1000);
    if (dice < 300 && clients_.size() < 400) return open();
    if (clients_.empty()) return;
    if (dice < 330) return tell(desk_, schema::CancelSession{any_client().session});
    if (dice < 345) any_client().stream->level = Level::gone;
    if (dice < 400) any_client().stream->level = Level::full;
    if (dice < 480) resume(any_client());
    if (dice < 486) kill_node();
    if (dice >= 486 && dice < 490) *any_node().frozen = true;
    if (dice >= 490 && dice < 496) *any_node().frozen = false;
    if (dice < 520) return advance(1 + random_->below(1500));
    step_all();
  }

  /// The client has a prefix of what the request gives, and all of it if it was told `done`.
  void check(const Client& client) {
    ASSERT_TRUE(client.stream->done());
    if (client.stream->outcome() != Outcome::done) {
      EXPECT_NE(client.stream->error(), ErrorCode::internal)
          << client.stream->dones[0].error->message;
    }
    for (uint32_t choice = 0; choice < client.request.choices; ++choice) {
      const auto ids = client.stream->ids(choice);
      for (uint32_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(ids[i], fake_token(client.request, choice, i));
      }
      if (client.stream->outcome() != Outcome::done) continue;
      EXPECT_EQ(ids.size(), client.request.stop.max_tokens);
      EXPECT_EQ(client.stream->finishes.count(choice), 1u);
    }
  }

  std::shared_ptr<Random> random_ = std::make_shared<Random>(GetParam());
  std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  std::shared_ptr<Fleet> fleet_ = std::make_shared<Fleet>();
  uint64_t workers_ = 0;
  schema::RouterHandle moody_;
  schema::FrontDeskHandle desk_;
  std::vector<Client> clients_;
};

TEST_P(Chaos, EverySessionEndsOnceWithTheRightTokensAndFreesItsBlocks) {
  SCOPED_TRACE("seed " + std::to_string(GetParam()));
  for (int i = 0; i < 3000; ++i) live();
  *faults_ = Faults{0, 0, 0};
  for (Node& node : *fleet_) *node.frozen = false;
  for (Client& client : clients_) resume(client);
  const auto open = [](const Client& client) { return !client.stream->done(); };
  for (int i = 0; i < 400 && std::any_of(clients_.begin(), clients_.end(), open); ++i) {
    for (int step = 0; step < 10; ++step) step_all();
    advance(500);
  }
  uint32_t done = 0;
  for (const Client& client : clients_) {
    check(client);
    done += client.stream->outcome() == Outcome::done ? 1 : 0;
  }
  EXPECT_GT(done, clients_.size() / 2) << "chaos must not become the rule";
  step_all();
  for (const Node& node : *fleet_) {
    EXPECT_TRUE(node.engine->idle()) << node.worker;
    node.engine->check_conservation();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Chaos, ::testing::Range(uint64_t{1}, uint64_t{13}));

}  // namespace
}  // namespace outrider::actors
