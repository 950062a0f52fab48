#include "tests/sim/cluster/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <map>
#include <memory>
#include <vector>

#include "schema/messages.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Two processes: one says numbers, the other one listens. Each watches the other.
class TwoProcesses : public ::testing::Test {
 protected:
  struct Heard {
    std::vector<uint64_t> numbers;
    uint32_t downs = 0;
  };

  TwoProcesses() { join(); }
  ~TwoProcesses() override { runtime_.stop(); }

  void join() {
    speaker_ = spawn(here_, spoken_);
    listener_ = spawn(there_, heard_);
    watch();
  }
  /// Each of them sees the other one, maybe again.
  void watch() {
    remote_ = network_.view(here_, caf::actor_cast<caf::strong_actor_ptr>(listener_));
    const auto back = network_.view(there_, caf::actor_cast<caf::strong_actor_ptr>(speaker_));
    caf::anon_send(speaker_, caf::actor_cast<caf::actor>(remote_));
    caf::anon_send(listener_, caf::actor_cast<caf::actor>(back));
    runtime_.run_actors();
  }
  caf::actor spawn(ProcessId process, std::shared_ptr<Heard> heard) {
    return runtime_.spawn(process, [heard](caf::actor_system& system) {
      return system.spawn([heard](caf::event_based_actor* self) -> caf::behavior {
        self->set_default_handler(caf::drop);
        self->set_down_handler([heard](caf::down_msg&) { ++heard->downs; });
        return {
            [heard](const schema::CancelSession& message) {
              heard->numbers.push_back(message.session);
            },
            [self](const caf::actor& other) { self->monitor(other); },
        };
      });
    });
  }
  void say(uint64_t number) {
    const auto sender = caf::actor_cast<caf::strong_actor_ptr>(speaker_);
    remote_->enqueue(sender, caf::make_message_id(),
                     caf::make_message(schema::CancelSession{number}), nullptr);
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
  const std::shared_ptr<Heard> spoken_ = std::make_shared<Heard>();
  const std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  caf::actor speaker_;
  caf::actor listener_;
  caf::strong_actor_ptr remote_;  ///< The listener, as the speaker sees it.
};

TEST_F(TwoProcesses, MessagesArriveOnceInOrderAndNotAtOnce) {
  std::vector<uint64_t> said;
  for (uint64_t number = 0; number < 100; ++number) {
    say(number);
    said.push_back(number);
  }
  EXPECT_TRUE(heard_->numbers.empty());
  pass(milliseconds(10));
  EXPECT_EQ(heard_->numbers, said);
}

TEST_F(TwoProcesses, AHostileNetworkLosesRepeatsAndReorders) {
  network_.heal({milliseconds(1), milliseconds(2), 0.2f, 0.2f, 0.2f, milliseconds(50)});
  for (uint64_t number = 0; number < 1000; ++number) say(number);
  pass(milliseconds(100));
  std::map<uint64_t, uint32_t> times;
  for (const uint64_t number : heard_->numbers) ++times[number];
  EXPECT_LT(times.size(), 900u);
  EXPECT_GT(times.size(), 700u);
  EXPECT_GT(heard_->numbers.size(), times.size() + 100);
  EXPECT_FALSE(std::is_sorted(heard_->numbers.begin(), heard_->numbers.end()));
}

TEST_F(TwoProcesses, ADeathIsNoticedAtOnce) {
  network_.kill(there_, true);
  pass(milliseconds(10));
  EXPECT_EQ(spoken_->downs, 1u);
  EXPECT_TRUE(is_dead_proxy(remote_));
  say(1);
  pass(milliseconds(10));
  EXPECT_TRUE(heard_->numbers.empty());
}

TEST_F(TwoProcesses, AnActorThatEndsIsNoticedThoughItsProcessLives) {
  caf::anon_send_exit(listener_, caf::exit_reason::user_shutdown);
  runtime_.run_actors();
  pass(milliseconds(10));
  EXPECT_EQ(spoken_->downs, 1u);
  EXPECT_TRUE(network_.reaches(here_, there_));
}

TEST_F(TwoProcesses, AShortCutOnlyDelays) {
  network_.cut(here_, there_);
  say(1);
  pass(seconds(2));
  EXPECT_TRUE(heard_->numbers.empty());
  network_.mend(here_, there_);
  say(2);
  pass(seconds(5));
  EXPECT_EQ(heard_->numbers, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(spoken_->downs + heard_->downs, 0u);
}

TEST_F(TwoProcesses, ALongCutOfOneWayBreaksTheConnectionForBoth) {
  network_.cut(here_, there_);
  say(1);
  pass(seconds(4));
  EXPECT_EQ(heard_->downs, 1u) << "hears nothing";
  EXPECT_EQ(spoken_->downs, 1u) << "is told so";
  network_.mend(here_, there_);
  pass(seconds(1));
  EXPECT_TRUE(heard_->numbers.empty()) << "what was on its way is lost";
}

TEST_F(TwoProcesses, APausedProcessHearsLaterAndIsGivenUpAfterSilence) {
  network_.pause(there_);
  say(1);
  pass(seconds(1));
  EXPECT_TRUE(heard_->numbers.empty());
  network_.resume(there_);
  pass(milliseconds(10));
  EXPECT_EQ(heard_->numbers.size(), 1u);
  network_.pause(there_);
  say(2);
  pass(seconds(4));
  EXPECT_EQ(spoken_->downs, 1u);
  EXPECT_EQ(heard_->downs, 0u);
  network_.resume(there_);
  pass(milliseconds(10));
  EXPECT_EQ(heard_->numbers, (std::vector<uint64_t>{1, 2})) << "it had arrived before";
  EXPECT_EQ(heard_->downs, 1u);
}

TEST_F(TwoProcesses, ProxiesOfOneActorAreEqualAlsoAfterABreak) {
  const auto before = remote_;
  network_.cut(here_, there_);
  pass(seconds(4));
  network_.heal(Travel{});
  watch();
  EXPECT_NE(before.get(), remote_.get());
  EXPECT_EQ(caf::actor_cast<caf::actor>(before), caf::actor_cast<caf::actor>(remote_));
  EXPECT_NE(caf::actor_cast<caf::actor>(before), listener_);
  say(7);
  pass(milliseconds(10));
  EXPECT_EQ(heard_->numbers, (std::vector<uint64_t>{7}));
}

}  // namespace
}  // namespace outrider::sim::cluster
