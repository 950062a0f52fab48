#include "actors/engine_loop.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <thread>

#include "actors/fake_engine.test.hpp"
#include "base/log.hpp"

namespace outrider::actors {
namespace {

GenerationRequest request_of(int32_t prompt, uint32_t max_tokens) {
  GenerationRequest request;
  request.prompt = {prompt, prompt + 1};
  request.stop.max_tokens = max_tokens;
  return request;
}

/// Everything published, safe to read once the loop is idle or gone.
class Published {
 public:
  EngineListener listener() {
    return [this](EngineEvents events) { take(std::move(events)); };
  }
  std::vector<int32_t> ids(RequestKey key) {
    const std::lock_guard lock(mutex_);
    return ids_[key];
  }
  size_t accepted() {
    const std::lock_guard lock(mutex_);
    return accepted_;
  }
  std::vector<Error> rejected() {
    const std::lock_guard lock(mutex_);
    return rejected_;
  }
  bool hints_could_pay() {
    const std::lock_guard lock(mutex_);
    return hints_could_pay_;
  }
  FinishReason finish(RequestKey key) {
    const std::lock_guard lock(mutex_);
    return finishes_.at(key);
  }

 private:
  void take(EngineEvents events) {
    const std::lock_guard lock(mutex_);
    accepted_ += events.accepted.size();
    hints_could_pay_ = events.step.hints_could_pay;
    for (auto& [key, error] : events.rejected) rejected_.push_back(std::move(error));
    for (const model::ChoiceUpdate& update : events.updates) {
      for (const TokenOut& token : update.tokens) ids_[update.key].push_back(token.id);
      if (update.finish) finishes_[update.key] = update.finish->reason;
    }
  }

  std::mutex mutex_;
  std::map<RequestKey, std::vector<int32_t>> ids_;
  std::map<RequestKey, FinishReason> finishes_;
  std::vector<Error> rejected_;
  size_t accepted_ = 0;
  bool hints_could_pay_ = false;  ///< By the last of all.
};

/// An engine whose first step waits for the test.
class GatedEngine final : public Stepper {
 public:
  GatedEngine(std::promise<void>& reached, std::future<void> open)
      : reached_(reached), open_(std::move(open)) {}
  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted) override {
    submissions[key] = submitted;
    return engine_.submit(key, std::move(request), submitted);
  }
  void cancel(RequestKey key) override { engine_.cancel(key); }
  void set_parked(RequestKey key, bool parked) override { engine_.set_parked(key, parked); }
  bool redirect(RequestKey key, std::span<const int32_t> output) override {
    return engine_.redirect(key, output);
  }
  bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) override {
    return engine_.fork(key, fresh, output);
  }
  void hint(RequestKey key, uint32_t choice, const model::Hint& hint) override {
    engine_.hint(key, choice, hint);
  }
  bool idle() const override { return engine_.idle(); }
  void on_arrival(std::function<void()> wake) override { engine_.on_arrival(std::move(wake)); }
  std::span<const model::ChoiceUpdate> step() override {
    if (open_.valid()) {
      reached_.set_value();
      open_.get();
    }
    return engine_.step();
  }
  model::CacheReset forget_cached(const std::optional<std::string>& tenant) override {
    return engine_.forget_cached(tenant);
  }
  model::EngineStats stats() const override { return engine_.stats(); }
  void check_conservation() const override {
    engine_.check_conservation();
    ++checks;
  }
  const std::vector<DraftedHint>& hints() const { return engine_.hints; }

  mutable std::atomic<uint32_t> checks = 0;
  std::map<RequestKey, TimePoint> submissions;

 private:
  FakeEngine engine_;
  std::promise<void>& reached_;
  std::future<void> open_;
};

/// No request is open, but its tier is owed blocks, of which each step gives it one.
class OwingEngine final : public Stepper {
 public:
  struct Debts {
    std::atomic<uint64_t> owed = 0;
    uint32_t steps_a_block = 1;  ///< That the tier takes; 0: none.
  };
  explicit OwingEngine(Debts& debts) : debts_(debts) {}
  Result<void> submit(RequestKey, GenerationRequest, TimePoint) override { return {}; }
  void cancel(RequestKey) override {}
  void set_parked(RequestKey, bool) override {}
  bool redirect(RequestKey, std::span<const int32_t>) override { return false; }
  bool fork(RequestKey, RequestKey, std::span<const int32_t>) override { return false; }
  void hint(RequestKey, uint32_t, const model::Hint&) override {}
  bool idle() const override { return debts_.owed == 0; }
  void on_arrival(std::function<void()>) override {}
  std::span<const model::ChoiceUpdate> step() override {
    if (debts_.owed > 0 && debts_.steps_a_block > 0 && ++steps_ % debts_.steps_a_block == 0) {
      --debts_.owed;
      ++stats_.tier.queued_blocks;
    }
    return {};
  }
  model::CacheReset forget_cached(const std::optional<std::string>&) override { return {}; }
  model::EngineStats stats() const override {
    model::EngineStats stats = stats_;
    stats.tier.waiting_blocks = debts_.owed;
    return stats;
  }
  void check_conservation() const override {}

 private:
  Debts& debts_;
  uint32_t steps_ = 0;
  model::EngineStats stats_;
};

/// Half a second passes with each look at it.
class HurriedClock final : public Clock {
 public:
  TimePoint now() const override { return now_ += std::chrono::milliseconds(500); }
  Duration passed() const { return now_ - TimePoint{}; }

 private:
  mutable TimePoint now_{};
};

const SteadyClock k_clock;

TEST(EngineLoop, AStopHandsOverWhatTheTierIsOwed) {
  OwingEngine::Debts debts;
  debts.owed = 100'000;
  {
    const EngineLoop loop(
        std::make_unique<OwingEngine>(debts), [](EngineEvents) {}, k_clock);
  }
  EXPECT_EQ(debts.owed, 0u);
}

TEST(EngineLoop, AStopWaitsForATierThatTakesABlockNowAndThen) {
  OwingEngine::Debts debts;
  debts.owed = 2;
  debts.steps_a_block = 60;
  {
    const EngineLoop loop(
        std::make_unique<OwingEngine>(debts), [](EngineEvents) {}, k_clock);
  }
  EXPECT_EQ(debts.owed, 0u);
}

TEST(EngineLoop, AStopGivesUpOnATierThatTakesNothingAndSaysWhatIsLost) {
  const HurriedClock clock;
  OwingEngine::Debts debts;
  debts.steps_a_block = 0;
  Duration begin{0};
  ::testing::internal::CaptureStderr();
  {
    EngineLoop loop(
        std::make_unique<OwingEngine>(debts), [](EngineEvents) {}, clock,
        EngineLoop::Options{.log = *make_logger({})});
    loop.wait_idle();  // it rests, and looks at no clock
    debts.owed = 3;
    begin = clock.passed();
  }
  const std::string lines = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(debts.owed, 3u);
  EXPECT_GE(clock.passed() - begin, std::chrono::milliseconds(limits::hand_over_ms));
  EXPECT_LT(clock.passed() - begin, std::chrono::milliseconds(limits::hand_over_ms + 1500));
  EXPECT_NE(lines.find("did not take 3 blocks"), std::string::npos) << lines;
}

TEST(EngineLoop, ServesManyThreadsAtOnce) {
  Published published;
  EngineLoop loop(std::make_unique<FakeEngine>(), published.listener(), k_clock);
  constexpr uint32_t k_each = 50;
  std::vector<std::thread> clients;
  for (uint32_t client = 0; client < 4; ++client) {
    clients.emplace_back([&loop, client] {
      for (uint32_t i = 0; i < k_each; ++i) {
        EXPECT_TRUE(loop.submit({client, i}, request_of(static_cast<int32_t>(i), 1 + i % 7)));
        if (i % 10 == 0) (void)loop.snapshot();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  loop.wait_idle();
  EXPECT_EQ(published.accepted(), 4 * k_each);
  for (uint32_t client = 0; client < 4; ++client) {
    for (uint32_t i = 0; i < k_each; ++i) {
      const auto request = request_of(static_cast<int32_t>(i), 1 + i % 7);
      const auto ids = published.ids({client, i});
      ASSERT_EQ(ids.size(), request.stop.max_tokens);
      for (uint32_t at = 0; at < ids.size(); ++at) EXPECT_EQ(ids[at], fake_token(request, 0, at));
    }
  }
  EXPECT_EQ(loop.snapshot().stats.blocks_free, loop.snapshot().stats.blocks_total);
}

TEST(EngineLoop, RefusesWhatDoesNotFitItsInboxWithoutWaiting) {
  Published published;
  std::promise<void> reached;
  std::promise<void> open;
  EngineLoop loop(std::make_unique<GatedEngine>(reached, open.get_future()), published.listener(),
                  k_clock, EngineLoop::Options{2});
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 1)));
  reached.get_future().get();  // The engine is inside a step: the inbox fills.
  EXPECT_TRUE(loop.submit({1, 1}, request_of(1, 1)));
  EXPECT_TRUE(loop.submit({1, 2}, request_of(1, 1)));
  const auto third = loop.submit({1, 3}, request_of(1, 1));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::overloaded);
  EXPECT_EQ(loop.snapshot().inbox, 2u);
  loop.cancel({1, 1});  // Never refused.
  open.set_value();
  loop.wait_idle();
  EXPECT_EQ(published.finish({1, 1}), FinishReason::cancelled);
  EXPECT_EQ(published.finish({1, 2}), FinishReason::length);
  EXPECT_TRUE(loop.submit({1, 3}, request_of(1, 1)));
}

TEST(EngineLoop, ARequestWaitsFromWhenItCameNotFromTheEndOfTheStep) {
  Published published;
  std::promise<void> reached;
  std::promise<void> open;
  auto engine = std::make_unique<GatedEngine>(reached, open.get_future());
  const GatedEngine& inside = *engine;
  ManualClock clock;
  EngineLoop loop(std::move(engine), published.listener(), clock);
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 1)));
  reached.get_future().get();
  clock.advance(std::chrono::seconds(2));  // The loop's thread reads no time inside the step.
  const TimePoint came = clock.now();
  ASSERT_TRUE(loop.submit({1, 1}, request_of(1, 1)));
  clock.advance(std::chrono::seconds(3));
  open.set_value();
  loop.wait_idle();
  EXPECT_EQ(inside.submissions.at({1, 1}), came);
}

TEST(EngineLoop, CountsItsInboxInChoices) {
  Published published;
  std::promise<void> reached;
  std::promise<void> open;
  EngineLoop loop(std::make_unique<GatedEngine>(reached, open.get_future()), published.listener(),
                  k_clock, EngineLoop::Options{2});
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 1)));
  reached.get_future().get();
  GenerationRequest two = request_of(1, 1);
  two.choices = 2;
  EXPECT_TRUE(loop.submit({1, 1}, two));
  EXPECT_EQ(loop.snapshot().inbox, 2u);
  EXPECT_FALSE(loop.submit({1, 2}, request_of(1, 1)));
  open.set_value();
  loop.wait_idle();
}

TEST(EngineLoop, ChecksItsMemoryBeforeItRests) {
  Published published;
  std::promise<void> reached;
  std::promise<void> open;
  auto engine = std::make_unique<GatedEngine>(reached, open.get_future());
  const GatedEngine& inside = *engine;
  EngineLoop loop(std::move(engine), published.listener(), k_clock);
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 3)));
  reached.get_future().get();
  const uint32_t before = inside.checks;
  open.set_value();
  loop.wait_idle();
  EXPECT_EQ(inside.checks, before + 1);
}

TEST(EngineLoop, PassesTheEnginesRefusalOn) {
  Published published;
  EngineLoop loop(std::make_unique<FakeEngine>(), published.listener(), k_clock);
  ASSERT_TRUE(loop.submit({1, 0}, request_of(-5, 1)));
  loop.wait_idle();
  ASSERT_EQ(published.rejected().size(), 1u);
  EXPECT_EQ(published.rejected()[0].code, ErrorCode::invalid_argument);
}

TEST(EngineLoop, AParkedRequestGoesOnWhenItIsUnparked) {
  Published published;
  std::promise<void> reached;
  std::promise<void> open;
  EngineLoop loop(std::make_unique<GatedEngine>(reached, open.get_future()), published.listener(),
                  k_clock);
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 5)));
  reached.get_future().get();
  loop.set_parked({1, 0}, true);
  open.set_value();
  while (loop.snapshot().stats.parked == 0) std::this_thread::yield();
  EXPECT_LT(published.ids({1, 0}).size(), 5u);
  loop.set_parked({1, 0}, false);
  loop.wait_idle();
  EXPECT_EQ(published.ids({1, 0}).size(), 5u);
}

TEST(EngineLoop, StopsInTheMiddleOfItsWork) {
  Published published;
  {
    EngineLoop loop(std::make_unique<FakeEngine>(), published.listener(), k_clock);
    ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 4'000'000'000u)));
    while (published.ids({1, 0}).empty()) std::this_thread::yield();
  }
  const size_t produced = published.ids({1, 0}).size();
  EXPECT_GT(produced, 0u);
}

TEST(EngineLoop, MeasuresItsSpeedWhileItWorks) {
  Published published;
  EngineLoop loop(std::make_unique<FakeEngine>(), published.listener(), k_clock);
  EXPECT_EQ(loop.snapshot().rows_per_s, 0u);
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 100)));
  loop.wait_idle();
  EXPECT_GT(loop.snapshot().rows_per_s, 0u);
}

TEST(EngineLoop, TellsWhatTheEngineSaysOfHints) {
  for (const bool could_pay : {true, false}) {
    Published published;
    auto engine = std::make_unique<FakeEngine>();
    engine->hints_could_pay = could_pay;
    EngineLoop loop(std::move(engine), published.listener(), k_clock);
    ASSERT_TRUE(loop.submit({1, 1}, request_of(1, 5)));
    loop.wait_idle();
    EXPECT_EQ(published.hints_could_pay(), could_pay);
  }
}

TEST(EngineLoop, ForgetsBlocksWhileItRestsAndBetweenTwoSteps) {
  Published published;
  std::promise<void> reached;
  std::promise<void> open;
  EngineLoop loop(std::make_unique<GatedEngine>(reached, open.get_future()), published.listener(),
                  k_clock);
  const auto reset = [&loop](std::promise<model::CacheReset>& done) {
    loop.forget_cached("ann", [&done](model::CacheReset what) { done.set_value(what); });
    return done.get_future();
  };
  std::promise<model::CacheReset> resting;
  EXPECT_EQ(reset(resting).get().forgotten, 1u);
  ASSERT_TRUE(loop.submit({1, 0}, request_of(1, 2)));
  reached.get_future().wait();
  std::promise<model::CacheReset> stepping;
  auto answer = reset(stepping);
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  open.set_value();
  EXPECT_EQ(answer.get().forgotten, 2u);
  loop.wait_idle();
  EXPECT_EQ(published.ids({1, 0}).size(), 2u);
}

TEST(EngineLoop, HintsReachTheEngineBeforeItsNextStepAndAreBounded) {
  std::promise<void> reached;
  std::promise<void> open;
  auto gated = std::make_unique<GatedEngine>(reached, open.get_future());
  GatedEngine& engine = *gated;
  Published published;
  EngineLoop loop(std::move(gated), published.listener(), k_clock);
  ASSERT_TRUE(loop.submit({1, 1}, request_of(5, 4)));
  reached.get_future().get();  // In its first step: the hints wait.
  EXPECT_NE(loop.snapshot().step_began, TimePoint{0});
  loop.hint({{{1, 1}, 0, 2, 77, {{-1, 9, 200}}}});
  loop.hint(std::vector<DraftedHint>(limits::hint_branches_waiting_max));
  loop.count_hints(HintOutcome::no_lease, 3);
  open.set_value();
  loop.wait_idle();
  EXPECT_EQ(loop.snapshot().step_began, TimePoint{0});
  ASSERT_EQ(engine.hints().size(), limits::hint_branches_waiting_max - 1) << "one has a branch";
  EXPECT_EQ(engine.hints()[0].base_hash, 77u);
  EXPECT_EQ(engine.hints()[0].branches.at(0).token, 9);
  const auto& outcomes = loop.snapshot().stats.hints.hints;
  EXPECT_EQ(outcomes[static_cast<size_t>(HintOutcome::full)], 2u);
  EXPECT_EQ(outcomes[static_cast<size_t>(HintOutcome::no_lease)], 3u);
}

}  // namespace
}  // namespace outrider::actors
