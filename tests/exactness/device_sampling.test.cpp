#include <algorithm>
#include <cmath>

#include "base/philox.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "model/hint_trie.hpp"
#include "tests/exactness/device_engine.test.hpp"
#include "tests/exactness/forwarding_ops.test.hpp"

/// Tokens that a device draws are those that the host draws, in whatever company.
namespace outrider::exactness {
namespace {

constexpr uint64_t k_sampling_seed = 0xD4A3;
constexpr uint32_t k_vocabulary = 512;

/// An emulated device that counts what is drawn on it, or does not draw.
class WatchedOps : public ForwardingOps, private kernels::RowSampler {
 public:
  explicit WatchedOps(bool samples)
      : ForwardingOps(kernels::cuda::make_ops(kernels::cuda::make_emulated_device(), 1)),
        samples_(samples) {}
  kernels::RowSampler* sampler() override { return samples_ ? this : nullptr; }

  uint64_t drawn = 0;

 private:
  void sample(const float* logits, size_t vocabulary, std::span<const kernels::RowDraw> draws,
              int32_t* chosen) override {
    drawn += draws.size();
    inner_->sampler()->sample(logits, vocabulary, draws, chosen);
  }
  bool samples_;
};

GenerationRequest plain_request(Random& random) {
  GenerationRequest request;
  for (uint32_t i = 3 + random.below(12); i > 0; --i) {
    request.prompt.push_back(static_cast<int32_t>(random.below(k_vocabulary)));
  }
  request.sampling.seed = random.next_u64();
  request.sampling.temperature = random.chance(0.4f) ? 0.0f : 0.2f + random.uniform() * 1.5f;
  request.stop.max_tokens = 8;
  request.stop.ignore_eos = true;
  return request;
}

std::vector<GenerationRequest> plain_requests(Random& random, size_t count, uint32_t max_tokens) {
  std::vector<GenerationRequest> requests(count);
  for (GenerationRequest& request : requests) {
    request = plain_request(random);
    request.stop.max_tokens = max_tokens;
  }
  return requests;
}

/// Of each kind one: those that need no more than tokens, and all reasons to look at logits.
std::vector<GenerationRequest> mixed_requests() {
  Random random(k_sampling_seed);
  std::vector<GenerationRequest> all = plain_requests(random, 14, 8);
  all[1].choices = 3;
  all[2].sampling.top_k = 5;
  all[3].sampling.top_p = 0.8f;
  all[4].sampling.temperature = 0.9f;
  all[4].sampling.min_p = 0.05f;
  all[5].sampling.repetition_penalty = 1.3f;
  all[6].sampling.logit_bias = {{7, 4.0f}, {9, -100.0f}};
  all[7].logprobs = 2;
  all[8].prompt_logprobs = 1;
  // From the fourth token on the device may draw.
  all[9].stop.min_tokens = 3;
  for (int32_t id = 0; id < 500; ++id) all[9].stop.stop_token_ids.push_back(id);
  all[10].draft = DraftKind::same_noise;
  all[11].draft = DraftKind::drawn;
  all[12].sampling.temperature = 1;
  all[12].speculation.method = SpeculationMethod::reject_sampling;
  return all;
}

TEST(Exactness, AnEmulatedDeviceDrawsTheTokensOfTheHostInMixedBatches) {
  const std::vector<GenerationRequest> requests = mixed_requests();
  const auto device = std::make_shared<WatchedOps>(true);
  const auto host = std::make_shared<WatchedOps>(false);
  const Transcript expected = DeviceEngine(host, DeviceEngine::small()).run(requests);
  expect_same(DeviceEngine(device, DeviceEngine::small()).run(requests), expected);
  EXPECT_EQ(host->drawn, 0u);
  // Six choices want no more than tokens, and one from its fourth on.
  EXPECT_GE(device->drawn, 6u * 8);
  EXPECT_LE(device->drawn, 7u * 8);
}

/// More draws than logits are computed at a time: what the device has no room for the host draws.
TEST(Exactness, AnEmulatedDeviceDrawsAsManyAsItHasRoomFor) {
  Random random(k_sampling_seed + 1);
  GenerationRequest request = plain_request(random);
  request.choices = 12;
  request.stop.max_tokens = 3;
  model::EngineOptions options = DeviceEngine::small();
  options.batch_tokens = 10;
  const auto device = std::make_shared<WatchedOps>(true);
  const Transcript expected =
      DeviceEngine(std::make_shared<WatchedOps>(false), options).run({request});
  expect_same(DeviceEngine(device, options).run({request}), expected);
  EXPECT_EQ(device->drawn, 10u + 2 * 12);
}

/// `text`'s tokens behind the prompt's and those that are out, of which every fourth is wrong.
void give_hints(DeviceEngine& world, const GenerationRequest& request, const Told& text,
                RequestKey key) {
  std::vector<int32_t> known = request.prompt;
  const std::vector<int32_t> out = world.transcript[{key.session, 0}].ids();
  known.insert(known.end(), out.begin(), out.end());
  std::vector<model::HintBranch> branches;
  for (size_t i = out.size(); i < text.tokens.size() && branches.size() < 6; ++i) {
    const int32_t token = text.tokens[i].id ^ (i % 4 == 3 ? 1 : 0);
    branches.push_back({static_cast<int32_t>(branches.size()) - 1, token, 250});
  }
  world.engine->hint(key, 0,
                     {.base_length = static_cast<uint32_t>(known.size()),
                      .base_hash = model::text_hash(model::k_empty_text, known),
                      .branches = branches});
}

TEST(Exactness, AnEmulatedDeviceDrawsTheTokensOfTheHostBehindHints) {
  Random random(k_sampling_seed + 2);
  std::vector<GenerationRequest> requests = plain_requests(random, 5, 14);
  requests[1].sampling.top_k = 3;
  requests[2].sampling.presence_penalty = 0.4f;
  const Transcript expected =
      DeviceEngine(std::make_shared<WatchedOps>(false), DeviceEngine::small()).run(requests);
  model::EngineOptions options = DeviceEngine::small();
  options.speculation = {.depth_max = 6, .fixed_depth = true};
  for (const bool samples : {false, true}) {
    const auto ops = std::make_shared<WatchedOps>(samples);
    DeviceEngine world(ops, options);
    std::vector<RequestKey> keys;
    for (const GenerationRequest& request : requests) keys.push_back(world.submit(request));
    while (!world.engine->idle()) {
      for (size_t i = 0; i < keys.size(); ++i) {
        give_hints(world, requests[i], expected.at({keys[i].session, 0}), keys[i]);
      }
      world.step();
    }
    expect_same(world.transcript, expected);
    EXPECT_GT(world.engine->stats().hints.accepted_tokens, 20u);
    EXPECT_EQ(ops->drawn > 3 * 14, samples);
  }
}

/// Writes into logits: two that share the highest place, and what is no number.
class OddLogitsOps final : public WatchedOps {
 public:
  using WatchedOps::WatchedOps;
  void matmul(const kernels::Rows& rows, size_t m,
              std::span<const kernels::Product> products) override {
    ForwardingOps::matmul(rows, m, products);
    if (products[0].w->rows() != k_vocabulary) return;
    ++calls_;
    float* const logits = products[0].y;
    for (size_t row = 0; row < m && calls_ % 3 == 1; ++row) {
      put(logits + row * k_vocabulary + 3, 1000.0f);
      put(logits + row * k_vocabulary + 7, 1000.0f);
    }
    if (calls_ == 5) put(logits, NAN);
    if (calls_ == 6) put(logits + (m - 1) * k_vocabulary + 9, HUGE_VALF);
    if (calls_ == 8) put(logits + k_vocabulary - 1, -HUGE_VALF);
  }

 private:
  void put(float* at, float value) {
    upload({reinterpret_cast<const std::byte*>(&value), sizeof(value)},
           reinterpret_cast<std::byte*>(at));
  }
  uint64_t calls_ = 0;
};

TEST(Exactness, AnEmulatedDeviceTreatsOddLogitsAsTheHostDoes) {
  Random random(k_sampling_seed + 3);
  std::vector<GenerationRequest> requests = plain_requests(random, 7, 10);
  requests[4].sampling.top_k = 4;
  const auto device = std::make_shared<OddLogitsOps>(true);
  const Transcript expected =
      DeviceEngine(std::make_shared<OddLogitsOps>(false), DeviceEngine::small()).run(requests);
  expect_same(DeviceEngine(device, DeviceEngine::small()).run(requests), expected);
  EXPECT_GT(device->drawn, 0u);
  uint32_t failed = 0;
  for (const auto& [key, told] : expected) {
    failed += told.finish->reason == FinishReason::failed ? 1 : 0;
    if (told.finish->reason != FinishReason::failed) continue;
    EXPECT_NE(told.error.find("not a finite number"), std::string::npos) << told.error;
  }
  EXPECT_EQ(failed, 3u);
}

}  // namespace
}  // namespace outrider::exactness
