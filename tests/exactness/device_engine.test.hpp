#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/clock.hpp"
#include "model/engine.hpp"

namespace outrider::exactness {

/// Everything that one choice was told.
struct Told {
  std::vector<TokenOut> tokens;
  std::vector<TokenOut> prompt_tokens;
  std::optional<Finish> finish;
  std::string error;

  std::vector<int32_t> ids() const {
    std::vector<int32_t> out;
    for (const TokenOut& token : tokens) out.push_back(token.id);
    return out;
  }
  friend bool operator==(const Told&, const Told&) = default;
};
/// By request, in the order of `submit`, and choice.
using Transcript = std::map<std::pair<uint64_t, uint32_t>, Told>;

/// An engine over a tiny model on some device.
class DeviceEngine {
 public:
  DeviceEngine(std::shared_ptr<kernels::Ops> ops, const model::EngineOptions& options,
               const std::string& model = "tests/support/models/tiny-llama.gguf") {
    auto loaded = model::load_model(model, std::move(ops));
    OUTRIDER_CHECK(loaded.ok(), loaded.error().message);
    auto made = model::Engine::create(*loaded, options, clock_);
    OUTRIDER_CHECK(made.ok(), made.error().message);
    engine = std::move(made).value();
  }

  static model::EngineOptions small() {
    model::EngineOptions options;
    options.context_tokens = 128;
    options.batch_tokens = 64;
    options.sequences = 16;
    options.kv_memory_bytes = uint64_t{2} << 20;
    options.decode_plan.is_automatic = false;
    return options;
  }

  RequestKey submit(GenerationRequest request) {
    const RequestKey key{submitted_++, 0};
    const auto accepted = engine->submit(key, std::move(request));
    OUTRIDER_CHECK(accepted.ok(), accepted.error().message);
    return key;
  }
  void step() {
    for (const model::ChoiceUpdate& update : engine->step()) {
      Told& told = transcript[{update.key.session, update.choice}];
      told.tokens.insert(told.tokens.end(), update.tokens.begin(), update.tokens.end());
      told.prompt_tokens.insert(told.prompt_tokens.end(), update.prompt_tokens.begin(),
                                update.prompt_tokens.end());
      told.finish = update.finish;
      told.error = update.error;
    }
  }
  Transcript run(const std::vector<GenerationRequest>& requests) {
    for (const GenerationRequest& request : requests) submit(request);
    while (!engine->idle()) step();
    return transcript;
  }

  std::unique_ptr<model::Engine> engine;
  Transcript transcript;

 private:
  ManualClock clock_;
  uint64_t submitted_ = 0;
};

inline void expect_same(const Transcript& a, const Transcript& b) {
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [key, told] : a) {
    const auto other = b.find(key);
    ASSERT_NE(other, b.end());
    EXPECT_TRUE(told == other->second) << "request " << key.first << " choice " << key.second;
    EXPECT_EQ(told.ids(), other->second.ids());
    EXPECT_EQ(told.error, other->second.error);
  }
}

}  // namespace outrider::exactness
