#include <gtest/gtest.h>

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <future>
#include <mutex>

#include "actors/engine_loop.hpp"
#include "actors/front_desk.hpp"
#include "actors/system_config.hpp"
#include "actors/target_actor.hpp"
#include "base/hash.hpp"
#include "base/philox.hpp"
#include "model/engine.hpp"

/// Front desk, sessions, targets and engines on their real threads, over a tiny real model. Every
/// answer is compared, bit for bit, with an engine that runs the request alone.
namespace outrider::actors {
namespace {

using schema::StreamDone;
using Choices = std::map<uint32_t, std::vector<TokenOut>>;

struct Answer {
  Choices choices;
  std::vector<TokenOut> prompt_tokens;
  StreamDone done;
};

/// A client that collects; after `kill_after` output tokens it calls `kill` once.
class Client final : public schema::ClientStream {
 public:
  Level push(schema::StreamEvent event) override {
    const std::lock_guard lock(mutex_);
    if (auto* done = std::get_if<StreamDone>(&event)) {
      answer_.done = std::move(*done);
      promise_.set_value(answer_);
      return Level::flowing;
    }
    auto& tokens = std::get<schema::StreamTokens>(event);
    auto& choice = answer_.choices[tokens.choice];
    EXPECT_EQ(tokens.first_index, choice.size());
    choice.insert(choice.end(), tokens.tokens.begin(), tokens.tokens.end());
    answer_.prompt_tokens.insert(answer_.prompt_tokens.end(), tokens.prompt_tokens.begin(),
                                 tokens.prompt_tokens.end());
    taken_ += tokens.tokens.size();
    if (kill && taken_ >= kill_after) std::exchange(kill, nullptr)();
    return level;
  }
  Answer wait() { return promise_.get_future().get(); }

  size_t kill_after = 0;
  std::function<void()> kill;
  Level level = Level::flowing;

 private:
  std::mutex mutex_;
  Answer answer_;
  size_t taken_ = 0;
  std::promise<Answer> promise_;
};

struct Workers {
  std::vector<schema::Announce> announced;
  std::atomic<uint32_t> moved = 0;  ///< Placements of requests that had begun elsewhere.
};

/// Places everything on the first target that is left.
schema::RouterHandle::behavior_type first_router(
    schema::RouterHandle::stateful_pointer<caf::none_t> self, std::shared_ptr<Workers> workers) {
  self->set_down_handler([workers](const caf::down_msg& down) {
    std::erase_if(workers->announced,
                  [&](const auto& worker) { return worker.target == down.source; });
  });
  return {[self, workers](const schema::PlaceRequest& request) {
            schema::PlaceReply reply;
            reply.key = request.key;
            if (!request.fingerprint.empty()) ++workers->moved;
            if (workers->announced.empty()) {
              reply.refusal = schema::Refusal::of(fail(ErrorCode::unavailable, "none left"));
            } else {
              const schema::Announce& worker = workers->announced.front();
              reply.target = worker.target;
              reply.fingerprint = worker.fingerprint;
            }
            self->send(request.reply_to, reply);
          },
          [self, workers](const schema::Announce& announce) {
            self->monitor(announce.target);
            workers->announced.push_back(announce);
          },
          [](const schema::Load&) {},
          [](const schema::ListWorkers&) { return schema::WorkerList{}; }};
}

/// An engine that stops dead once it has produced `tokens`: its target is alive and will not
/// finish, so that a kill always comes in the middle.
class HaltingStepper final : public Stepper {
 public:
  HaltingStepper(std::unique_ptr<Stepper> inner, uint64_t tokens)
      : inner_(std::move(inner)), tokens_(tokens) {}
  Result<void> submit(RequestKey key, GenerationRequest request) override {
    return inner_->submit(key, std::move(request));
  }
  void cancel(RequestKey key) override { inner_->cancel(key); }
  void set_parked(RequestKey key, bool parked) override { inner_->set_parked(key, parked); }
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

std::unique_ptr<model::Engine> make_engine(const Clock& clock) {
  auto model = model::load_model("tests/support/models/tiny-llama.gguf",
                                 kernels::make_cpu_ops(1, kernels::default_isa()));
  OUTRIDER_CHECK(model.ok(), model.error().message);
  model::EngineOptions options;
  options.context_tokens = 128;
  options.batch_tokens = 64;
  options.sequences = 8;
  options.kv_memory_bytes = uint64_t{2} << 20;
  auto engine = model::Engine::create(std::move(model).value(), options, clock);
  OUTRIDER_CHECK(engine.ok(), engine.error().message);
  return std::move(engine).value();
}

class RealEngine : public ::testing::Test {
 protected:
  RealEngine() {
    router_ = system_.spawn(first_router, workers_);
    desk_ = system_.spawn(front_desk, FrontDeskSetup{router_, "tiny"});
  }
  ~RealEngine() override {
    for (const auto& target : targets_) kill(target);
    kill(desk_);
    kill(router_);
  }

  template <class Handle>
  static void kill(const Handle& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }

  void add_target(uint64_t halt_after = UINT64_MAX) {
    auto engine = std::make_shared<std::unique_ptr<model::Engine>>(make_engine(clock_));
    TargetSetup setup;
    setup.announce.fingerprint = to_hex((*engine)->fingerprint());
    setup.announce.context_tokens = (*engine)->context_tokens();
    setup.router = router_;
    setup.engine = [engine, this, halt_after](EngineListener listener) {
      auto loop = std::make_unique<EngineLoop>(
          std::make_unique<HaltingStepper>(make_stepper(std::move(*engine)), halt_after),
          std::move(listener), clock_);
      loop_ = loop.get();
      return loop;
    };
    targets_.push_back(system_.spawn(target_actor, std::move(setup)));
  }
  std::shared_ptr<Client> open(const GenerationRequest& request,
                               std::shared_ptr<Client> client = std::make_shared<Client>()) {
    caf::anon_send(desk_, schema::OpenSession{
                              ++session_, std::make_shared<GenerationRequest>(request), client});
    return client;
  }

  GenerationRequest request(uint64_t seed) {
    Random random(seed);
    GenerationRequest out;
    for (uint32_t i = 1 + random.below(40); i > 0; --i) {
      out.prompt.push_back(static_cast<int32_t>(random.below(64)));
    }
    out.sampling.seed = random.next_u64();
    out.sampling.temperature = random.chance(0.3f) ? 0.0f : 0.9f;
    out.sampling.repetition_penalty = random.chance(0.3f) ? 1.2f : 1.0f;
    out.stop.max_tokens = 1 + random.below(40);
    out.stop.ignore_eos = random.chance(0.7f);
    out.choices = random.chance(0.3f) ? 3 : 1;
    if (random.chance(0.5f)) out.logprobs = 2;
    if (random.chance(0.2f)) out.prompt_logprobs = 1;
    return out;
  }

  /// What an undisturbed engine says.
  Answer alone(const GenerationRequest& request) {
    Answer answer;
    if (!reference_) reference_ = make_engine(clock_);
    const auto taken = reference_->submit({1, reference_key_++}, request);
    OUTRIDER_CHECK(taken.ok(), taken.error().message);
    while (!reference_->idle()) {
      for (const model::ChoiceUpdate& update : reference_->step()) {
        auto& choice = answer.choices[update.choice];
        choice.insert(choice.end(), update.tokens.begin(), update.tokens.end());
        answer.prompt_tokens.insert(answer.prompt_tokens.end(), update.prompt_tokens.begin(),
                                    update.prompt_tokens.end());
      }
    }
    return answer;
  }
  void compare(const Answer& got, const GenerationRequest& request, uint64_t seed) {
    const Answer want = alone(request);
    ASSERT_EQ(got.done.outcome, StreamDone::Outcome::done)
        << "seed " << seed << ": " << (got.done.error ? got.done.error->message : "");
    EXPECT_EQ(got.choices, want.choices) << "seed " << seed;
    EXPECT_EQ(got.prompt_tokens, want.prompt_tokens) << "seed " << seed;
  }
  void wait_until_all_blocks_are_free() {
    while (true) {
      const EngineSnapshot engine = loop_.load()->snapshot();
      const model::EngineStats& stats = engine.stats;
      const uint32_t held = stats.running + stats.waiting + stats.parked + engine.inbox;
      if (stats.blocks_free == stats.blocks_total && held == 0) return;
      std::this_thread::yield();
    }
  }

  const SteadyClock clock_;
  SystemConfig config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Workers> workers_ = std::make_shared<Workers>();
  schema::RouterHandle router_;
  schema::FrontDeskHandle desk_;
  std::vector<TargetActor> targets_;
  std::atomic<EngineLoop*> loop_ = nullptr;  ///< Of the newest target.
  uint64_t session_ = 0;
  uint32_t reference_key_ = 1;
  std::unique_ptr<model::Engine> reference_;
};

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
    add_target(8);
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
