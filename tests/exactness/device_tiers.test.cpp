#include <gtest/gtest.h>

#include <algorithm>

#include "actors/warm_tier.hpp"
#include "base/philox.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "model/memory_tier.test.hpp"
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

size_t block_bytes_of(const model::EngineOptions& options,
                      const std::shared_ptr<kernels::Ops>& ops) {
  const auto loaded = model::load_model("tests/support/models/tiny-llama.gguf", ops);
  OUTRIDER_CHECK(loaded.ok(), loaded.error().message);
  return model::kv_geometry((*loaded)->config, options.block_tokens, options.kv_kinds)
      .block_bytes();
}

/// An emulated device, so many blocks of the host's memory beside it, and an engine whose pool
/// holds one long request and a little more.
struct World {
  explicit World(size_t warm_blocks)
      : ops(kernels::cuda::make_ops(kernels::cuda::make_emulated_device(), 1)) {
    model::EngineOptions options = DeviceEngine::small();
    const size_t block_bytes = block_bytes_of(options, ops);
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

/// The same over a tier that looks at once and gives what was asked for when the test says so:
/// between two steps the test knows which copies are under way.
struct Scripted {
  explicit Scripted(bool with_tier, uint32_t blocks = 32)
      : ops(kernels::cuda::make_ops(kernels::cuda::make_emulated_device(), 1)) {
    model::EngineOptions options = DeviceEngine::small();
    const size_t block_bytes = block_bytes_of(options, ops);
    options.context_tokens = std::min(192u, blocks * options.block_tokens);
    options.kv_memory_bytes = (blocks + 1) * block_bytes;  // and one that stays zero
    engine = std::make_unique<DeviceEngine>(ops, options);
    tier->warm = ops;
    if (with_tier) engine->engine->attach_tier(tier);
  }

  RequestKey submit(const GenerationRequest& request) { return engine->submit(request); }
  void step() {
    engine->step();
    engine->engine->check_conservation();
  }
  void step_until_finished(const RequestKey& key) {
    while (!engine->transcript[{key.session, 0}].finish) step();
  }
  void deliver(size_t blocks) {
    if (!tier->waiting.empty()) tier->deliver(blocks);
  }
  void run() {
    while (!engine->engine->idle()) {
      step();
      while (!tier->waiting.empty()) tier->deliver(1000);
    }
  }
  /// Its blocks are in the tier, and not in the pool.
  void store(const GenerationRequest& request) {
    submit(request);
    run();
    engine->engine->evict_cached(1000);
  }
  model::EngineStats stats() const { return engine->engine->stats(); }

  std::shared_ptr<kernels::Ops> ops;
  std::shared_ptr<model::MemoryTier> tier = std::make_shared<model::MemoryTier>();
  std::unique_ptr<DeviceEngine> engine;
};

GenerationRequest kept(uint64_t seed, uint32_t tokens) {
  GenerationRequest request = prompt(seed, tokens);
  request.kv.ttl_s = 60;
  request.kv.stop_rule = KvStopRule::wait_complete;
  return request;
}

TEST(DeviceTiers, ATierGetsABlockWhenItsCopyIsThere) {
  Scripted with(true);
  Scripted without(false);
  for (Scripted* world : {&with, &without}) {
    world->store(kept(1, 52));
    world->submit(kept(1, 52));
    world->run();
  }
  EXPECT_EQ(with.stats().prefix_hits_warm, 48u);
  expect_same(with.engine->transcript, without.engine->transcript);
}

TEST(DeviceTiers, ABlockThatLeavesIsNobodyElsesUntilItsCopyIsThere) {
  Scripted with(true, 6);
  Scripted without(false, 6);
  for (Scripted* world : {&with, &without}) {
    GenerationRequest first = kept(1, 52);
    first.stop.max_tokens = 1;
    world->step_until_finished(world->submit(first));
    ASSERT_LT(world->tier->stored.size(), 3u) << "some are on their way";
    world->submit(prompt(2, 70));  // wants five of the six blocks
    world->run();
    world->engine->engine->evict_cached(1000);
    world->submit(first);
    world->run();
  }
  EXPECT_EQ(with.stats().prefix_hits_warm, 48u);
  expect_same(with.engine->transcript, without.engine->transcript);
}

TEST(DeviceTiers, ABlockThatLeavesDoesSoOnceButForTheStore) {
  for (const bool is_kept : {false, true}) {
    SCOPED_TRACE(is_kept ? "kept" : "used again");
    Scripted world(true);
    world.tier->is_cold_too = true;
    GenerationRequest request = prompt(1, 52);
    request.stop.max_tokens = 1;
    world.submit(request);
    world.run();
    world.step_until_finished(world.submit(request));
    ASSERT_LT(world.tier->stored.size(), 3u) << "some are on their way";
    if (is_kept) request.kv.ttl_s = 60;
    world.step_until_finished(world.submit(request));
    world.run();
    EXPECT_EQ(world.tier->stored.size(), 3u);
    EXPECT_EQ(world.tier->stored_cold.size(), is_kept ? 3u : 0u);
    if (!is_kept) {
      EXPECT_EQ(world.stats().tier.queued_blocks, 3u);
    }
  }
}

TEST(DeviceTiers, TextsThatPartMayLeaveTogether) {
  Scripted with(true);
  Scripted without(false);
  for (Scripted* world : {&with, &without}) {
    GenerationRequest one = kept(1, 52);
    GenerationRequest two = kept(2, 52);
    std::copy_n(one.prompt.begin(), 16, two.prompt.begin());
    world->submit(one);
    world->submit(two);
    world->run();
    EXPECT_EQ(world->tier->stored.size(), world == &with ? 5u : 0u);
    world->engine->engine->evict_cached(1000);
    world->submit(two);
    world->submit(one);
    world->run();
  }
  EXPECT_GE(with.stats().prefix_hits_warm, 80u);
  expect_same(with.engine->transcript, without.engine->transcript);
}

TEST(DeviceTiers, WhatIsForgottenWhileItLeavesIsNotOnTheHostAfterwards) {
  Scripted world(true);
  GenerationRequest request = kept(1, 52);
  request.stop.max_tokens = 1;
  world.step_until_finished(world.submit(request));
  ASSERT_FALSE(world.engine->engine->idle()) << "its blocks are on their way";
  ASSERT_LT(world.tier->stored.size(), 3u);
  world.engine->engine->forget_cached(std::nullopt);
  world.run();
  EXPECT_TRUE(world.tier->stored.empty());
}

TEST(DeviceTiers, WhatIsForgottenWhileItEntersIsNotInThePoolAfterwards) {
  Scripted world(true);
  world.store(kept(1, 52));
  GenerationRequest other = prompt(2, 20);
  other.stop.max_tokens = 30;
  world.submit(other);  // so that steps have something to do, and copies take several
  world.step();
  world.submit(kept(1, 52));
  world.step();
  world.deliver(3);
  world.step();
  ASSERT_EQ(world.stats().tier.read_blocks, 0u) << "its blocks are on their way";
  world.engine->engine->forget_cached(std::nullopt);
  world.run();
  EXPECT_EQ(world.stats().prefix_hits, 0u);
}

TEST(DeviceTiers, WhatIsForgottenBeforeItEntersIsNotInThePoolAfterwards) {
  Scripted world(true);
  world.store(kept(1, 52));
  world.submit(kept(1, 52));
  world.step();
  ASSERT_FALSE(world.tier->waiting.empty());
  world.deliver(2);  // and no step looks at them; the third is still to come
  world.engine->engine->forget_cached(std::nullopt);
  world.run();
  EXPECT_EQ(world.stats().tier.read_blocks, 0u);
  EXPECT_EQ(world.stats().prefix_hits, 0u);
}

TEST(DeviceTiers, WhatOthersComputeWhileBlocksEnterChangesNoBits) {
  Scripted with(true);
  Scripted without(false);
  for (Scripted* world : {&with, &without}) {
    const GenerationRequest reader = kept(1, 165);
    world->store(reader);
    GenerationRequest other = prompt(2, 100);
    std::copy_n(reader.prompt.begin(), 64, other.prompt.begin());
    other.kv.stop_rule = KvStopRule::best_effort;
    world->submit(reader);
    world->step();
    world->deliver(1);
    world->submit(other);
    world->step();  // The first block is on its way; the other request computed four of them.
    world->deliver(7);
    world->run();
  }
  EXPECT_GT(with.stats().prefix_hits_warm, 0u);
  expect_same(with.engine->transcript, without.engine->transcript);
}

}  // namespace
}  // namespace outrider::exactness
