#include <gtest/gtest.h>

#include <caf/event_based_actor.hpp>
#include <caf/stateful_actor.hpp>
#include <chrono>
#include <memory>

#include "actors/target_actor.hpp"
#include "base/log.hpp"
#include "tests/sim/cluster/network.hpp"
#include "tests/sim/cluster/paged_engine.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::seconds;

/// A session in one process, a target with a slow engine in another one.
class TargetReconnect : public ::testing::Test {
 protected:
  TargetReconnect() {
    actors::TargetSetup setup;
    setup.announce.context_tokens = 100;
    setup.log = silent_logger();
    setup.engine = [this](actors::EngineListener listener) {
      return engine_->open(engine_, std::move(listener));
    };
    target_ = caf::actor_cast<caf::strong_actor_ptr>(runtime_.spawn(
        there_,
        [&](caf::actor_system& system) { return system.spawn(actors::target_actor, setup); }));
    session_ =
        caf::actor_cast<caf::strong_actor_ptr>(runtime_.spawn(here_, [](caf::actor_system& system) {
          return system.spawn([](caf::event_based_actor* self) -> caf::behavior {
            self->set_default_handler(caf::drop);
            return {[](const schema::Accepted&) {}};
          });
        }));
    runtime_.run_actors();
  }
  ~TargetReconnect() override { runtime_.stop(); }

  template <class Message>
  void say(Message message) {
    network_.view(here_, target_)
        ->enqueue(session_, caf::make_message_id(), caf::make_message(std::move(message)), nullptr);
  }
  void submit(RequestKey key) {
    schema::SubmitBegin begin;
    begin.key = key;
    begin.session = caf::actor_cast<schema::SessionHandle>(session_);
    begin.prompt_tokens = begin.parts = 1;
    begin.request.max_tokens = 1000;
    say(begin);
    say(schema::PromptPart{key, 0, {1}});
    say(schema::SubmitEnd{key});
    pass(seconds(1));
  }
  void pass(Duration by) {
    const TimePoint end = runtime_.now() + by;
    while (runtime_.time().step(end)) runtime_.run_actors();
    runtime_.run_actors();
  }

  Random random_{1};
  Runtime runtime_;
  Network network_{runtime_, random_, Travel{}};
  const ProcessId here_ = runtime_.begin_process();
  const ProcessId there_ = runtime_.begin_process();
  std::shared_ptr<PagedEngine> engine_ = std::make_shared<PagedEngine>(
      PagedEngine::Options{.ops = kernels::make_ref_ops(), .tier = nullptr}, [] {});
  caf::strong_actor_ptr target_;
  caf::strong_actor_ptr session_;
};

TEST_F(TargetReconnect, ASessionThatComesAgainBeforeItsOldRequestHasEndedIsWatchedToo) {
  submit({1, 1});
  EXPECT_EQ(engine_->choices(), 1u);
  network_.cut(here_, there_);
  pass(seconds(4));  // Both give up; the engine has not looked at the cancel yet.
  network_.mend(here_, there_);
  submit({1, 2});
  EXPECT_EQ(engine_->choices(), 2u);
  network_.kill(here_, true);
  pass(seconds(1));
  engine_->step();
  EXPECT_TRUE(engine_->idle()) << "nobody will ever read the second one";
}

/// What it is told meanwhile waits: of a router over a connection that is gone by then, and of the
/// same one over the next; only after both does it hear that the first is gone.
TEST_F(TargetReconnect, ATargetThatStandsStillWhileItsRouterIsLostAndFoundAgainReportsToIt) {
  const auto announces = std::make_shared<int>(0);
  const auto loads = std::make_shared<int>(0);
  const auto router =
      caf::actor_cast<caf::strong_actor_ptr>(runtime_.spawn(here_, [&](caf::actor_system& system) {
        return system.spawn([announces, loads](caf::event_based_actor* self) -> caf::behavior {
          self->set_default_handler(caf::drop);
          return {[announces](const schema::Announce&) { ++*announces; },
                  [loads](const schema::Load&) { ++*loads; }};
        });
      }));
  const auto find_router = [&] {
    const auto seen = network_.view(there_, router);
    caf::anon_send(caf::actor_cast<caf::actor>(target_),
                   schema::RouterFound{caf::actor_cast<schema::RouterHandle>(seen)});
    return seen;
  };
  runtime_.set_hanging(there_, true);
  const auto first = find_router();
  network_.cut(here_, there_);
  pass(seconds(4));
  network_.mend(here_, there_);
  const auto second = find_router();
  ASSERT_TRUE(is_dead_proxy(first));
  ASSERT_FALSE(is_dead_proxy(second));
  ASSERT_EQ(first->address(), second->address());
  runtime_.set_hanging(there_, false);
  runtime_.run_actors();
  pass(seconds(3));
  EXPECT_EQ(*announces, 1);
  EXPECT_GE(*loads, 5);
  network_.kill(here_, true);
  pass(seconds(1));
  const uint64_t sent = network_.sent();
  pass(seconds(3));
  EXPECT_EQ(network_.sent(), sent) << "the second one is watched, too";
}

}  // namespace
}  // namespace outrider::sim::cluster
