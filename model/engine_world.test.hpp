#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.hpp"
#include "base/utf8.hpp"
#include "model/engine.hpp"

namespace outrider::model {

/// Everything that one choice was told.
struct Heard {
  std::vector<TokenOut> tokens;
  std::vector<TokenOut> prompt_tokens;
  std::optional<Finish> finish;
  std::string error;
  RequestTimings timings;

  std::vector<int32_t> ids() const {
    std::vector<int32_t> out;
    for (const TokenOut& token : tokens) out.push_back(token.id);
    return out;
  }
};

/// An engine over a tiny model, its clock, and what it said. Checks each update's indices and that
/// nothing follows a finish.
class EngineWorld {
 public:
  using Choices = std::map<uint32_t, Heard>;

  explicit EngineWorld(EngineOptions options = small()) {
    auto made = Engine::create(model(), options, clock);
    OUTRIDER_CHECK(made.ok(), made.error().message);
    engine = std::move(made).value();
  }

  static std::shared_ptr<const LoadedModel> model() {
    static const std::shared_ptr<const LoadedModel> loaded = [] {
      auto model = load_model("tests/support/models/tiny-llama.gguf",
                              kernels::make_cpu_ops(1, kernels::default_isa()));
      OUTRIDER_CHECK(model.ok(), model.error().message);
      return std::move(model).value();
    }();
    return loaded;
  }

  static EngineOptions small() {
    EngineOptions options;
    options.context_tokens = 128;
    options.batch_tokens = 64;
    options.sequences = 8;
    options.kv_memory_bytes = uint64_t{2} << 20;
    return options;
  }
  /// A pool of `blocks` blocks (and the one that stays zero).
  static EngineOptions with_blocks(uint32_t blocks) {
    EngineOptions options = small();
    options.context_tokens = 0;
    const ModelConfig& c = model()->config;
    options.kv_memory_bytes = uint64_t{blocks + 1} * c.layers * c.kv_dim() * 2 * 2 * 16;
    return options;
  }

  static GenerationRequest request(uint64_t seed, uint32_t prompt_tokens, uint32_t max_tokens) {
    Random random(seed);
    GenerationRequest out;
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      out.prompt.push_back(static_cast<int32_t>(random.below(model()->config.vocab)));
    }
    out.sampling.seed = seed;
    out.stop.max_tokens = max_tokens;
    out.stop.ignore_eos = true;
    return out;
  }

  RequestKey submit(GenerationRequest request) {
    const RequestKey key{++sessions, 0};
    const auto accepted = engine->submit(key, std::move(request));
    EXPECT_TRUE(accepted.ok()) << accepted.error().message;
    return key;
  }

  void step() {
    for (const ChoiceUpdate& update : engine->step()) {
      Heard& choice = heard[update.key][update.choice];
      EXPECT_FALSE(choice.finish.has_value()) << "an update after the end";
      if (!update.tokens.empty()) {
        EXPECT_EQ(update.first_index, first_index[update.key] + choice.tokens.size());
      }
      if (!update.prompt_tokens.empty()) {
        EXPECT_EQ(update.prompt_first_index, choice.prompt_tokens.size());
      }
      append(choice.tokens, update.tokens);
      append(choice.prompt_tokens, update.prompt_tokens);
      choice.finish = update.finish;
      choice.error = update.error;
      EXPECT_EQ(update.finish.has_value(), update.timings.has_value());
      if (update.timings) choice.timings = *update.timings;
    }
    engine->check_conservation();
  }

  void run() {
    while (!engine->idle()) step();
    EXPECT_EQ(engine->stats().blocks_free, engine->stats().blocks_total);
  }

  /// The request alone in this engine.
  Choices alone(GenerationRequest request) {
    const auto committed = static_cast<uint32_t>(request.committed.size());
    const RequestKey key = submit(std::move(request));
    first_index[key] = committed;
    run();
    return heard[key];
  }

  ManualClock clock;
  std::unique_ptr<Engine> engine;
  std::map<RequestKey, Choices> heard;
  std::map<RequestKey, uint32_t> first_index;  ///< Committed tokens of a continued request.
  uint64_t sessions = 0;

 private:
  static void append(std::vector<TokenOut>& to, const std::vector<TokenOut>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }
};

}  // namespace outrider::model
