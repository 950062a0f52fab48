#include "actors/front_desk.hpp"

#include <caf/scoped_actor.hpp>

#include "actors/world.test.hpp"

namespace outrider::actors {
namespace {

class FrontDesk : public World {
 protected:
  FrontDesk() {
    request_.prompt = {1, 2, 3};
    desk_ = own(
        system_.spawn(front_desk, FrontDeskSetup{router_, {{"tiny", "fp"}, {"small", "fs"}}, 2}));
  }

  std::shared_ptr<Collector> open(uint64_t session, const std::string& model = "tiny") {
    auto client = std::make_shared<Collector>();
    tell(desk_, schema::OpenSession{session, model, std::make_shared<GenerationRequest>(request_),
                                    client});
    return client;
  }
  uint32_t count() {
    uint32_t open = 0;
    caf::scoped_actor self(system_);
    self->send(desk_, schema::CountSessions{});
    run();
    self->receive([&](const schema::SessionCount& count) { open = count.open; });
    return open;
  }

  schema::FrontDeskHandle desk_;
  GenerationRequest request_;
};

TEST_F(FrontDesk, OutlivesARouterThatDoesNotUnderstandIt) {
  tell(caf::actor_cast<caf::actor>(desk_), caf::make_error(caf::sec::unexpected_message));
  open(1);
  EXPECT_EQ(count(), 1u);
}

TEST_F(FrontDesk, TellsItsRouterWhatClientsArePromised) {
  run();
  ASSERT_EQ(router_log_->served.size(), 1u) << "all at once: nobody is refused meanwhile";
  const std::vector<schema::Served>& models = router_log_->served[0].models;
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].model, "tiny");
  EXPECT_EQ(models[1].fingerprint, "fs");
}

TEST_F(FrontDesk, SpawnsASessionPerRequestAndForgetsItAtItsEnd) {
  const auto client = open(1);
  EXPECT_EQ(router_log_->places.size(), 1u);
  EXPECT_EQ(router_log_->places[0].key.session, 1u);
  EXPECT_EQ(count(), 1u);
  tell(desk_, schema::CancelSession{1});
  EXPECT_EQ(client->outcome(), Outcome::cancelled);
  EXPECT_EQ(count(), 0u);
}

TEST_F(FrontDesk, AsksForATargetOfTheModelThatTheRequestNames) {
  open(1, "small");
  open(2);
  ASSERT_EQ(router_log_->places.size(), 2u);
  EXPECT_EQ(router_log_->places[0].model, "small");
  EXPECT_EQ(router_log_->places[1].model, "tiny");
}

TEST_F(FrontDesk, RefusesMoreSessionsThanItsBound) {
  const auto first = open(1);
  const auto second = open(2);
  const auto third = open(3);
  EXPECT_EQ(third->outcome(), Outcome::rejected);
  EXPECT_EQ(third->error(), ErrorCode::overloaded);
  EXPECT_GT(third->dones[0].retry_after_ms, 0u);
  EXPECT_FALSE(first->done() || second->done());
  tell(desk_, schema::CancelSession{1});
  EXPECT_FALSE(open(4)->done());
}

TEST_F(FrontDesk, RefusesWhatNoSessionCouldServe) {
  const auto first = open(1);
  EXPECT_EQ(open(1)->error(), ErrorCode::internal) << "the same id twice";
  EXPECT_FALSE(first->done());
  request_.prompt.clear();
  const auto refused = open(2);
  EXPECT_EQ(refused->error(), ErrorCode::invalid_argument);
  EXPECT_EQ(refused->dones[0].retry_after_ms, 0u) << "another try does not help";
}

TEST_F(FrontDesk, TakesItsSessionsWithItSoThatEachStreamEnds) {
  const auto client = open(1);
  kill(desk_);
  ASSERT_TRUE(client->done());
  EXPECT_EQ(client->outcome(), Outcome::failed);
}

TEST_F(FrontDesk, IgnoresSessionsThatItDoesNotKnow) {
  tell(desk_, schema::CancelSession{99});
  tell(desk_, schema::ResumeSession{99});
  EXPECT_EQ(count(), 0u);
}

}  // namespace
}  // namespace outrider::actors
