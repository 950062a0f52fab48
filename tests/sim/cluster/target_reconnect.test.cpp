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
  std::shared_ptr<PagedEngine> engine_ =
      std::make_shared<PagedEngine>(PagedEngine::Options{}, [] {});
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

}  // namespace
}  // namespace outrider::sim::cluster
