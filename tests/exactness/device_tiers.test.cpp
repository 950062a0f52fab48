#include <gtest/gtest.h>

#include "actors/warm_tier.hpp"
#include "base/philox.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "model/transformer.hpp"
#include "tests/exactness/device_engine.test.hpp"

/// Blocks that go from a device to memory of the host and back while steps go on. A copy of the
/// emulated device reads what is there when it ends, and leaves noise where it writes until then:
/// who takes a block's memory too soon, or reads it, gets other bits.
namespace outrider::exactness {
namespace {

GenerationRequest prompt(uint64_t seed, uint32_t tokens) {
  Random random(seed);
  GenerationRequest request;
  for (uint32_t i = 0; i < tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random.below(512)));
  }
  request.sampling.seed = seed;
  request.sampling.temperature = 0.8f;
  request.stop.max_tokens = 6;
  request.stop.ignore_eos = true;
  request.logprobs = 2;
  return request;
}

/// An emulated device, so many blocks of the host's memory beside it, and an engine whose pool
/// holds one long request and a little more.
struct World {
  explicit World(size_t warm_blocks)
      : ops(kernels::cuda::make_ops(kernels::cuda::make_emulated_device(), 1)) {
    model::EngineOptions options = DeviceEngine::small();
    const auto loaded = model::load_model("tests/support/models/tiny-llama.gguf", ops);
    OUTRIDER_CHECK(loaded.ok(), loaded.error().message);
    const size_t block_bytes =
        model::kv_geometry((*loaded)->config, options.block_tokens, options.kv_kinds).block_bytes();
    options.context_tokens = 96;
    options.kv_memory_bytes = 7 * block_bytes;  // six, and one that stays zero
    engine = std::make_unique<DeviceEngine>(ops, options);
    if (warm_blocks == 0) return;
    kernels::Ops::Buffer memory = ops->allocate_host(warm_blocks * block_bytes);
    const auto release = memory.get_deleter();
    warm = std::make_shared<kvstore::WarmStore>(
        std::shared_ptr<std::byte>(memory.release(), release), block_bytes, warm_blocks);
    engine->engine->attach_tier(actors::make_warm_tier(warm, nullptr));
  }

  void run(const std::vector<GenerationRequest>& requests) {
    engine->run(requests);
    engine->engine->check_conservation();
  }
  model::EngineStats stats() const { return engine->engine->stats(); }

  std::shared_ptr<kernels::Ops> ops;
  std::shared_ptr<kvstore::WarmStore> warm;
  std::unique_ptr<DeviceEngine> engine;
};

TEST(DeviceTiers, WhatThePoolGaveUpComesBackFromTheHostWithTheSameBits) {
  World with(32);
  World without(0);
  for (const uint64_t seed : {1, 2, 3, 1, 2, 3}) {
    with.run({prompt(seed, 52)});
    without.run({prompt(seed, 52)});
  }
  expect_same(with.engine->transcript, without.engine->transcript);
  EXPECT_EQ(with.stats().prefix_hits_warm, 3 * 48u);
  EXPECT_EQ(with.stats().prefix_hits, 3 * 48u);
  EXPECT_EQ(without.stats().prefix_hits, 0u) << "each prompt takes all of the pool";
  EXPECT_GT(with.stats().prefix_evictions, 0u);
}

TEST(DeviceTiers, RequestsThatGoOnMeanwhileKeepTheirBits) {
  World with(32);
  World without(0);
  for (uint64_t round = 0; round < 3; ++round) {
    std::vector<GenerationRequest> requests;
    for (uint64_t i = 0; i < 4; ++i) {
      requests.push_back(prompt((round + i) % 5, static_cast<uint32_t>(20 + 12 * i)));
      requests.back().stop.max_tokens = 8;
    }
    with.run(requests);
    without.run(requests);
  }
  expect_same(with.engine->transcript, without.engine->transcript);
  EXPECT_GT(with.stats().prefix_hits_warm, 0u);
  EXPECT_GT(with.stats().prefix_evictions, 0u);
}

TEST(DeviceTiers, ALittleMemoryOfTheHostKeepsWhatWasUsedLast) {
  World with(4);
  for (const uint64_t seed : {1, 2, 3, 1}) with.run({prompt(seed, 52)});
  EXPECT_EQ(with.stats().prefix_hits, 0u) << "the first one's blocks are nowhere any more";
  with.warm->check();
  EXPECT_EQ(with.warm->stats().blocks, 4u);
  EXPECT_EQ(with.warm->stats().evicted, 4 * 3u - 4);
}

TEST(DeviceTiers, WhatATenantForgetsIsForgottenOnTheHostToo) {
  World with(32);
  for (const uint64_t seed : {1, 2}) with.run({prompt(seed, 52)});
  EXPECT_EQ(with.warm->stats().blocks, 6u);
  with.engine->engine->forget_cached(std::nullopt);
  EXPECT_EQ(with.warm->stats().blocks, 0u);
  with.run({prompt(1, 52)});
  EXPECT_EQ(with.stats().prefix_hits, 0u);
}

TEST(DeviceTiers, AnEngineMayEndAmidCopies) {
  for (const int steps : {1, 2, 4}) {
    World with(32);
    for (const uint64_t seed : {1, 2}) with.run({prompt(seed, 52)});
    with.engine->submit(prompt(1, 52));
    for (int i = 0; i < steps; ++i) with.engine->step();
  }
}

}  // namespace
}  // namespace outrider::exactness
