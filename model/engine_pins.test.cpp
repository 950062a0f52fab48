#include <gtest/gtest.h>

#include "model/engine_world.test.hpp"

/// Requests whose blocks are pinned in the pool: what stays when memory is short, and that it never
/// stands in anybody's way.
namespace outrider::model {
namespace {

GenerationRequest pinned(uint64_t seed, uint32_t tokens, uint32_t ttl_s = 0) {
  GenerationRequest request = EngineWorld::request(seed, tokens, 4);
  request.tenant = "tenant " + std::to_string(seed);
  request.kv.pin = true;
  request.kv.ttl_s = ttl_s;
  return request;
}

/// Other prompts, one after the other, until they have filled a pool of 40 blocks twice.
void fill(EngineWorld& world) {
  for (uint64_t seed = 100; seed < 116; ++seed) world.alone(EngineWorld::request(seed, 90, 4));
}

uint32_t found(EngineWorld& world, GenerationRequest request) {
  request.kv = {};
  return world.alone(request)[0].timings.cached.all;
}

TEST(EnginePins, APinnedPromptStaysWhereOthersAreEvicted) {
  EngineWorld world(EngineWorld::with_blocks(40));
  const GenerationRequest request = pinned(1, 90);
  world.alone(request);
  EXPECT_EQ(world.engine->stats().blocks_pinned, 5u);
  world.alone(EngineWorld::request(2, 90, 4));
  fill(world);
  EXPECT_EQ(found(world, EngineWorld::request(2, 90, 4)), 0u);
  EXPECT_EQ(found(world, request), 80u);
  EXPECT_EQ(world.engine->stats().pins_evicted, 0u);
}

TEST(EnginePins, WhoTakesBlocksThatWereThereAlreadyPinsThemToo) {
  EngineWorld world(EngineWorld::with_blocks(40));
  const GenerationRequest request = pinned(1, 90);
  EXPECT_EQ(found(world, request), 0u);
  EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
  EXPECT_EQ(world.alone(request)[0].timings.cached.all, 80u);
  EXPECT_EQ(world.engine->stats().blocks_pinned, 5u);
}

TEST(EnginePins, EndWithTheirTimeToLive) {
  EngineWorld world(EngineWorld::with_blocks(40));
  const GenerationRequest request = pinned(1, 90, 10);
  world.alone(request);
  world.clock.advance(std::chrono::seconds(9));
  fill(world);
  EXPECT_EQ(found(world, request), 80u);
  world.clock.advance(std::chrono::seconds(1));
  fill(world);
  EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
  EXPECT_EQ(found(world, request), 0u);
}

TEST(EnginePins, BeyondTheirShareOfThePoolAreRefusedAndCounted) {
  EngineWorld world(EngineWorld::with_blocks(40));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const uint32_t refused = seed <= 2 ? 0 : 5;
    EXPECT_EQ(world.alone(pinned(seed, 90))[0].timings.pins_refused, refused) << "and told";
  }
  EXPECT_EQ(world.engine->stats().blocks_pinned, 10u) << "a quarter";
  EXPECT_EQ(world.engine->stats().pins_refused, 10u);
  fill(world);
  EXPECT_EQ(found(world, pinned(2, 90)), 80u);
  EXPECT_EQ(found(world, pinned(3, 90)), 0u);
}

TEST(EnginePins, OneTenantHasHalfOfTheirShareAtMost) {
  EngineWorld world(EngineWorld::with_blocks(40));
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    GenerationRequest request = pinned(seed, 90);
    request.tenant = "greedy";
    world.alone(request);
  }
  EXPECT_EQ(world.engine->stats().blocks_pinned, 5u);
  EXPECT_EQ(world.engine->stats().pins_refused, 5u);
  world.alone(pinned(3, 90));
  EXPECT_EQ(world.engine->stats().blocks_pinned, 10u);
}

TEST(EnginePins, ARunningSequenceGetsPinnedBlocksWhenThereAreNoOthers) {
  EngineWorld world(EngineWorld::with_blocks(12));
  for (uint64_t seed = 1; seed <= 3; ++seed) world.alone(pinned(seed, 40));
  EXPECT_EQ(world.engine->stats().blocks_pinned, 3u);
  const GenerationRequest large = EngineWorld::request(9, 180, 12);
  EXPECT_EQ(world.alone(large)[0].finish->reason, FinishReason::length);
  EXPECT_EQ(world.engine->stats().blocks_pinned, 0u);
  EXPECT_EQ(world.engine->stats().pins_evicted, 3u);
}

/// Each request pins, memory is short, and some are preempted: all end, with the bits of a run
/// alone.
TEST(EnginePins, ManyAtOnceNeitherStarveNorChangeABit) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    EngineWorld world(EngineWorld::with_blocks(12));
    std::map<RequestKey, GenerationRequest> asked;
    for (int step = 0; step < 120; ++step) {
      if (random.below(6) == 0) {
        const GenerationRequest request =
            pinned(1 + random.below(5), 20 + 16 * random.below(6), random.below(3));
        asked[world.submit(request)] = request;
      }
      if (random.below(12) == 0) world.engine->preempt_all();
      world.clock.advance(std::chrono::milliseconds(random.below(200)));
      world.step();
    }
    world.run();
    for (const auto& [key, request] : asked) {
      const Heard expected = EngineWorld().alone(request)[0];
      EXPECT_EQ(world.heard[key][0].tokens, expected.tokens);
    }
  }
}

}  // namespace
}  // namespace outrider::model
