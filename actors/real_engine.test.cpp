#include <gtest/gtest.h>

#include "actors/real_world.test.hpp"

namespace outrider::actors {
namespace {

using RealEngine = RealWorld;

/// An engine that stops dead once it has produced `tokens`: its target is alive and will not
/// finish, so that a kill always comes in the middle.
class HaltingStepper final : public Stepper {
 public:
  HaltingStepper(std::unique_ptr<Stepper> inner, uint64_t tokens)
      : inner_(std::move(inner)), tokens_(tokens) {}
  Result<void> submit(RequestKey key, GenerationRequest request, TimePoint submitted) override {
    return inner_->submit(key, std::move(request), submitted);
  }
  void cancel(RequestKey key) override { inner_->cancel(key); }
  void set_parked(RequestKey key, bool parked) override { inner_->set_parked(key, parked); }
  bool redirect(RequestKey key, std::span<const int32_t> output) override {
    return inner_->redirect(key, output);
  }
  bool fork(RequestKey key, RequestKey fresh, std::span<const int32_t> output) override {
    return inner_->fork(key, fresh, output);
  }
  void hint(RequestKey key, uint32_t choice, const model::Hint& hint) override {
    inner_->hint(key, choice, hint);
  }
  bool idle() const override { return inner_->idle(); }
  void on_arrival(std::function<void()> wake) override { inner_->on_arrival(std::move(wake)); }
  std::span<const model::ChoiceUpdate> step() override {
    if (inner_->stats().generated_tokens >= tokens_) return {};
    return inner_->step();
  }
  model::CacheReset forget_cached(const std::optional<std::string>& tenant) override {
    return inner_->forget_cached(tenant);
  }
  model::EngineStats stats() const override { return inner_->stats(); }
  void check_conservation() const override { inner_->check_conservation(); }

 private:
  const std::unique_ptr<Stepper> inner_;
  const uint64_t tokens_;
};

auto halting_after(uint64_t tokens) {
  return [tokens](std::unique_ptr<Stepper> inner) -> std::unique_ptr<Stepper> {
    return std::make_unique<HaltingStepper>(std::move(inner), tokens);
  };
}

TEST_F(RealEngine, AnswersManyRequestsAtOnceAsItAnswersEachAlone) {
  add_target();
  std::vector<std::shared_ptr<Client>> clients;
  for (uint64_t seed = 0; seed < 60; ++seed) clients.push_back(open(request(seed)));
  for (uint64_t seed = 0; seed < 60; ++seed) compare(clients[seed]->wait(), request(seed), seed);
}

TEST_F(RealEngine, AKilledTargetChangesNoBitOfTheAnswer) {
  for (uint64_t seed = 100; seed < 140; ++seed) {
    const uint32_t before = workers_->moved;
    GenerationRequest asked = request(seed);
    asked.stop.max_tokens = 20 + static_cast<uint32_t>(seed % 20);
    asked.stop.ignore_eos = true;
    add_target(halting_after(8));
    auto client = std::make_shared<Client>();
    client->kill_after = 1 + seed % 7;
    client->kill = [this, doomed = targets_.back()] {
      add_target();
      kill(doomed);
    };
    compare(open(asked, client)->wait(), asked, seed);
    EXPECT_GT(workers_->moved, before) << "seed " << seed;
    kill(targets_.back());
  }
}

TEST_F(RealEngine, FreesAllBlocksWhenClientsLeave) {
  add_target();
  GenerationRequest endless = request(1);
  endless.stop.max_tokens = 60;
  endless.stop.ignore_eos = true;
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 12; ++i) {
    auto client = std::make_shared<Client>();
    if (i % 2 == 0) client->level = schema::ClientStream::Level::gone;
    clients.push_back(open(endless, client));
    if (i % 2 == 1) caf::anon_send(desk_, schema::CancelSession{session_});
  }
  for (auto& client : clients) client->wait();
  wait_until_all_blocks_are_free();
}

TEST_F(RealEngine, TellsTheClientWhatTheModelCannotTake) {
  add_target();
  GenerationRequest wrong = request(1);
  wrong.prompt = {1'000'000'000};
  const Answer answer = open(wrong)->wait();
  EXPECT_EQ(answer.done.outcome, StreamDone::Outcome::rejected);
  EXPECT_EQ(answer.done.error->code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace outrider::actors
