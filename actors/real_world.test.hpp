#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <future>
#include <mutex>

#include "actors/draft_actor.hpp"
#include "actors/engine_loop.hpp"
#include "actors/front_desk.hpp"
#include "actors/system_config.hpp"
#include "actors/target_actor.hpp"
#include "base/hash.hpp"
#include "base/philox.hpp"
#include "model/engine.hpp"

/// Front desk, sessions, targets, drafts and engines on their real threads, over a tiny real model.
/// Every answer is compared, bit for bit, with an engine that runs the request alone.
namespace outrider::actors {

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
  std::vector<schema::Announce> drafts;
  std::vector<std::pair<schema::LeaseDraft, uint32_t>> leases;  ///< With their generation.
};

/// Places all on the first target of their model that is left, and leases the first draft that is.
inline schema::RouterHandle::behavior_type first_router(
    schema::RouterHandle::stateful_pointer<caf::none_t> self, std::shared_ptr<Workers> workers) {
  const auto grant = [self, workers](const schema::LeaseDraft& ask, uint32_t generation) {
    schema::DraftLease lease{ask.request, generation, 0, {}};
    if (!workers->drafts.empty()) {
      lease.worker = workers->drafts.front().worker;
      lease.draft = workers->drafts.front().draft;
    }
    self->send(ask.reply_to, lease);
  };
  self->set_down_handler([workers, grant](const caf::down_msg& down) {
    std::erase_if(workers->announced,
                  [&](const auto& worker) { return worker.target == down.source; });
    const size_t lost = std::erase_if(
        workers->drafts, [&](const auto& worker) { return worker.draft == down.source; });
    if (lost == 0) return;
    for (auto& [ask, generation] : workers->leases) grant(ask, ++generation);
  });
  return {[self, workers](const schema::PlaceRequest& request) {
            schema::PlaceReply reply;
            reply.key = request.key;
            if (!request.fingerprint.empty()) ++workers->moved;
            const auto worker =
                std::find_if(workers->announced.begin(), workers->announced.end(),
                             [&](const auto& it) { return it.model == request.model; });
            if (worker == workers->announced.end()) {
              reply.refusal = schema::Refusal::of(fail(ErrorCode::unavailable, "none left"));
            } else {
              reply.target = worker->target;
              reply.fingerprint = worker->fingerprint;
            }
            self->send(request.reply_to, reply);
          },
          [self, workers](const schema::Announce& announce) {
            if (announce.role == schema::Role::draft) {
              self->monitor(announce.draft);
              workers->drafts.push_back(announce);
            } else {
              self->monitor(announce.target);
              workers->announced.push_back(announce);
            }
          },
          [](const schema::Load&) {},
          [workers, grant](const schema::LeaseDraft& ask) {
            workers->leases.emplace_back(ask, ask.generation + 1);
            grant(ask, ask.generation + 1);
          },
          [workers](const schema::EndLease& ended) {
            std::erase_if(workers->leases, [&](const auto& lease) {
              return lease.first.request == ended.request && lease.first.target == ended.target;
            });
          },
          [](const schema::ServesModel&) {},
          [](const schema::ListWorkers&) { return schema::WorkerList{}; }};
}

inline std::unique_ptr<model::Engine> make_engine(const Clock& clock,
                                                  model::SpeculationOptions speculation = {},
                                                  uint32_t local_window = 0) {
  auto model = model::load_model("tests/support/models/tiny-llama.gguf",
                                 kernels::make_cpu_ops(1, kernels::default_isa()));
  OUTRIDER_CHECK(model.ok(), model.error().message);
  model::EngineOptions options;
  options.context_tokens = 128;
  options.batch_tokens = 64;
  options.sequences = 8;
  options.kv_memory_bytes = uint64_t{2} << 20;
  options.speculation = speculation;
  options.local_window = local_window;
  auto engine = model::Engine::create(std::move(model).value(), options, clock);
  OUTRIDER_CHECK(engine.ok(), engine.error().message);
  return std::move(engine).value();
}

class RealWorld : public ::testing::Test {
 protected:
  RealWorld() {
    router_ = system_.spawn(first_router, workers_);
    desk_ = system_.spawn(front_desk, FrontDeskSetup{router_, {{"tiny", ""}}});
  }
  ~RealWorld() override {
    for (const auto& target : targets_) kill(target);
    for (const auto& draft : drafts_) kill(draft);
    kill(desk_);
    kill(router_);
  }

  template <class Handle>
  static void kill(const Handle& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  }

  using Wrap = std::function<std::unique_ptr<Stepper>(std::unique_ptr<Stepper>)>;

  /// `wrap` goes around its engine; with a depth it takes drafts, whatever they cost.
  void add_target(const Wrap& wrap = {}, model::SpeculationOptions speculation = {}) {
    auto engine =
        std::make_shared<std::unique_ptr<model::Engine>>(make_engine(clock_, speculation));
    TargetSetup setup;
    setup.announce.worker = ++worker_;
    setup.announce.model = "tiny";
    setup.announce.fingerprint = to_hex((*engine)->fingerprint());
    setup.announce.tokenizer = "tokens";
    setup.announce.context_tokens = (*engine)->context_tokens();
    setup.router = router_;
    if (speculation.fixed_depth) {
      setup.drafts = {.depth_max = speculation.depth_max, .duty = {.always = true}};
    }
    setup.engine = [engine, this, wrap](EngineListener listener) {
      auto stepper = make_stepper(std::move(*engine));
      if (wrap) stepper = wrap(std::move(stepper));
      auto loop = std::make_unique<EngineLoop>(std::move(stepper), std::move(listener), clock_);
      loop_ = loop.get();
      return loop;
    };
    targets_.push_back(system_.spawn(target_actor, std::move(setup)));
  }
  std::shared_ptr<Client> open(const GenerationRequest& request,
                               std::shared_ptr<Client> client = std::make_shared<Client>(),
                               const std::string& model = "tiny") {
    caf::anon_send(
        desk_, schema::OpenSession{++session_, model, std::make_shared<GenerationRequest>(request),
                                   client});
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
  Answer alone(const GenerationRequest& request, model::Engine& engine) {
    Answer answer;
    const auto taken = engine.submit({1, reference_key_++}, request);
    OUTRIDER_CHECK(taken.ok(), taken.error().message);
    while (!engine.idle()) {
      for (const model::ChoiceUpdate& update : engine.step()) {
        auto& choice = answer.choices[update.choice];
        choice.insert(choice.end(), update.tokens.begin(), update.tokens.end());
        answer.prompt_tokens.insert(answer.prompt_tokens.end(), update.prompt_tokens.begin(),
                                    update.prompt_tokens.end());
      }
    }
    return answer;
  }
  void compare(const Answer& got, const GenerationRequest& request, uint64_t seed) {
    if (!reference_) reference_ = make_engine(clock_);
    compare(got, request, seed, *reference_);
  }
  void compare(const Answer& got, const GenerationRequest& request, uint64_t seed,
               model::Engine& engine) {
    const Answer want = alone(request, engine);
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
  std::vector<caf::actor> drafts_;
  std::atomic<EngineLoop*> loop_ = nullptr;  ///< Of the newest target.
  uint64_t worker_ = 0;
  uint64_t session_ = 0;
  uint32_t reference_key_ = 1;
  std::unique_ptr<model::Engine> reference_;
};

}  // namespace outrider::actors
