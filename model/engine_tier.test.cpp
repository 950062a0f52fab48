#include <gtest/gtest.h>

#include "model/engine_world.test.hpp"
#include "model/memory_tier.test.hpp"
#include "model/step_costs.hpp"

/// The tier below the pool through the engine: what is stored, what is read instead of computed,
/// and that no bit changes whatever the tier does.
namespace outrider::model {
namespace {

EngineOptions with_room() {
  EngineOptions options = EngineWorld::small();
  options.context_tokens = 512;
  options.kv_memory_bytes = uint64_t{32} << 20;
  return options;
}

StepCosts costs() {
  StepCosts costs;
  costs.prefill_row_ns = 1'000'000;
  return costs;
}

uint32_t below(Random& random, size_t bound) {
  return static_cast<uint32_t>(random.below(static_cast<uint32_t>(bound)));
}

/// Engines one after the other over one tier: what outlives a restart.
struct Restarts {
  std::shared_ptr<MemoryTier> tier = std::make_shared<MemoryTier>();
  std::unique_ptr<EngineWorld> world;

  Restarts() { start(); }
  void start(EngineOptions options = with_room()) {
    world = std::make_unique<EngineWorld>(options);
    world->engine->set_step_costs(costs());
    world->engine->attach_tier(tier);
  }
  uint64_t rows() const { return world->engine->stats().rows; }
  /// All that is asked for comes at once.
  Heard alone(const GenerationRequest& request) {
    const RequestKey key = world->submit(request);
    while (!world->engine->idle()) {
      world->step();
      while (!tier->waiting.empty()) tier->deliver(1000);
    }
    return world->heard[key][0];
  }
  /// Its prompt's blocks are in the tier, and in no pool.
  void store(const GenerationRequest& request) {
    for (int i = 0; i < 2; ++i) alone(request);
    start();
  }
};

GenerationRequest prompt(uint64_t seed, uint32_t tokens) {
  GenerationRequest request = EngineWorld::request(seed, tokens, 5);
  request.logprobs = 2;
  return request;
}

Heard uncached(const GenerationRequest& request) {
  EngineOptions options = with_room();
  options.prefix_caching = false;
  return EngineWorld(options).alone(request)[0];
}

TEST(EngineTier, BlocksGoDownWhenTheyAreUsedASecondTime) {
  Restarts restarts;
  restarts.alone(prompt(1, 100));
  EXPECT_EQ(restarts.tier->stored.size(), 0u);
  restarts.alone(prompt(1, 100));
  EXPECT_EQ(restarts.tier->stored.size(), 6u);
  EXPECT_EQ(restarts.world->engine->stats().tier.queued_blocks, 6u);
  for (const auto& [id, stored] : restarts.tier->stored) {
    EXPECT_EQ(stored.block.tokens.size(), 16u);
    EXPECT_TRUE(stored.block.depth == 0 || restarts.tier->stored.contains(stored.block.parent));
  }
}

TEST(EngineTier, EachBlockKnowsItsPlaceInItsChain) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 100);
  request.kv.pin = true;
  request.stop.max_tokens =
      40;  // offered by two steps of the prompt, and by the answer's one by one
  restarts.alone(request);
  std::map<uint32_t, BlockId> chain;
  for (const auto& [id, stored] : restarts.tier->stored) chain[stored.block.depth] = id;
  ASSERT_EQ(chain.size(), 8u);
  for (uint32_t depth = 1; depth < 8; ++depth) {
    ASSERT_TRUE(chain.contains(depth)) << depth;
    EXPECT_EQ(restarts.tier->stored[chain[depth]].block.parent, chain[depth - 1]) << depth;
  }
  EXPECT_FALSE(restarts.tier->stored.contains(restarts.tier->stored[chain[0]].block.parent));
}

TEST(EngineTier, RoomForABlockAloneIsNoRoom) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  const TierBlock& any = restarts.tier->stored.begin()->second.block;
  const uint64_t block_bytes = any.k.size() + any.v.size();
  restarts.tier->stored.clear();
  restarts.tier->room_bytes = 2 * block_bytes - 1;
  EngineWorld& world = *restarts.world;
  const RequestKey key = world.submit(request);
  while (!world.heard[key][0].finish) world.step();
  world.step();
  EXPECT_EQ(restarts.tier->stored.size(), 0u) << "a record is more than its block";
  restarts.tier->room_bytes = 2 * block_bytes;
  world.run();
  EXPECT_EQ(restarts.tier->stored.size(), 6u);
}

TEST(EngineTier, BlocksWaitInThePoolUntilTheTierHasRoom) {
  Restarts restarts;
  restarts.tier->room_bytes = 0;
  restarts.alone(prompt(1, 100));
  EngineWorld& world = *restarts.world;
  const RequestKey key = world.submit(prompt(1, 100));
  while (!world.heard[key][0].finish) world.step();
  EXPECT_EQ(restarts.tier->stored.size(), 0u);
  EXPECT_FALSE(world.engine->idle()) << "it owes the tier six blocks";
  world.engine->evict_cached(1);
  restarts.tier->room_bytes = UINT64_MAX;
  world.run();
  EXPECT_EQ(restarts.tier->stored.size(), 5u);
  EXPECT_EQ(world.engine->stats().tier.lost_blocks, 1u) << "evicted before its turn";
}

TEST(EngineTier, StepsDoNotWaitForATierThatLooksLater) {
  Restarts restarts;
  restarts.tier->blind = true;
  EngineWorld& world = *restarts.world;
  for (int i = 0; i < 2; ++i) {
    const RequestKey key = world.submit(prompt(1, 100));
    while (!world.heard[key][0].finish) world.step();
  }
  EXPECT_TRUE(restarts.tier->touches.empty());
  EXPECT_FALSE(world.engine->idle()) << "the tier has not looked yet";
  restarts.tier->blind = false;
  int wakes = 0;
  world.engine->on_arrival([&] { ++wakes; });
  restarts.tier->look();
  EXPECT_EQ(wakes, 1);
  world.run();
  EXPECT_EQ(restarts.tier->stored.size(), 6u);
}

TEST(EngineTier, ARequestThatAsksForRetentionIsStoredAtOnce) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 100);
  request.tenant = "a";
  request.kv.pin = true;
  restarts.alone(request);
  ASSERT_EQ(restarts.tier->stored.size(), 6u);
  EXPECT_TRUE(restarts.tier->stored.begin()->second.retention.pin);
  EXPECT_EQ(restarts.tier->stored.begin()->second.retention.tenant, "a");
  request.kv = {.ttl_s = 7};
  restarts.alone(request);
  EXPECT_EQ(restarts.tier->stored.begin()->second.retention.ttl_s, 7u) << "what is stored already";
}

TEST(EngineTier, ARestartedEngineReadsInsteadOfComputing) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  const Heard heard = restarts.alone(request);
  EXPECT_EQ(restarts.rows(), 100u - 96 + 4);
  EXPECT_EQ(heard.timings.cached.all, 96u);
  EXPECT_EQ(heard.timings.cached.cold, 96u);
  EXPECT_EQ(heard.tokens, uncached(request).tokens);
  EXPECT_EQ(restarts.world->engine->stats().prefix_hits_cold, 96u);
  const Heard again = restarts.alone(request);
  EXPECT_EQ(again.timings.cached.all, 96u);
  EXPECT_EQ(again.timings.cached.cold, 0u) << "it is in the pool now";
}

TEST(EngineTier, WhatARequestJoinsWhileItRunsWasNotReadForIt) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 200);
  restarts.store(request);
  std::erase_if(restarts.tier->stored, [](const auto& at) { return at.second.block.depth > 1; });
  EngineWorld& world = *restarts.world;
  const RequestKey reader = world.submit(request);
  world.step();
  restarts.tier->deliver(2);
  world.step();
  request.priority = -1;  // it computes what comes next, and the reader joins it
  world.submit(request);
  world.run();
  EXPECT_EQ(world.heard[reader][0].timings.cached.all, 128u);
  EXPECT_EQ(world.heard[reader][0].timings.cached.cold, 32u);
  EXPECT_EQ(world.engine->stats().prefix_hits_cold, 32u);
}

TEST(EngineTier, OthersAreServedWhileARequestWaitsForItsBlocks) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  EngineWorld& world = *restarts.world;
  const RequestKey reader = world.submit(request);
  const RequestKey other = world.submit(prompt(2, 50));
  while (!world.heard[other][0].finish) world.step();
  EXPECT_EQ(world.heard[reader][0].tokens.size(), 0u);
  EXPECT_EQ(world.engine->stats().reading, 1u);
  restarts.tier->deliver(4);
  world.step();
  EXPECT_EQ(world.engine->stats().tier.read_blocks, 4u);
  EXPECT_EQ(world.engine->stats().reading, 1u);
  restarts.tier->deliver(2);
  world.run();
  EXPECT_EQ(world.heard[reader][0].tokens, uncached(request).tokens);
  EXPECT_EQ(world.heard[reader][0].timings.cached.cold, 96u);
}

TEST(EngineTier, WhatAReadDoesNotBringIsComputed) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  EngineWorld& world = *restarts.world;
  const RequestKey key = world.submit(request);
  world.step();
  restarts.tier->deliver(2);
  restarts.tier->end();
  world.run();
  EXPECT_EQ(restarts.rows(), 100u - 32 + 4);
  EXPECT_EQ(world.heard[key][0].timings.cached.cold, 32u);
  EXPECT_EQ(world.heard[key][0].tokens, uncached(request).tokens);
}

TEST(EngineTier, BestEffortTakesWhatHasComeWhenItsTurnComes) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  request.kv.stop_rule = KvStopRule::best_effort;
  EngineWorld& world = *restarts.world;
  const RequestKey key = world.submit(request);
  world.step();
  EXPECT_EQ(restarts.rows(), 64u) << "a whole step of it";
  EXPECT_TRUE(restarts.tier->waiting.front().cancelled->load());
  restarts.tier->deliver(6);
  world.run();
  EXPECT_EQ(world.heard[key][0].timings.cached.all, 0u);
  EXPECT_EQ(world.heard[key][0].tokens, uncached(request).tokens);
}

TEST(EngineTier, StopRulesBecomeTheStoresBounds) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  restarts.alone(request);
  EXPECT_EQ(restarts.tier->recompute, std::chrono::milliseconds(96));
  EXPECT_EQ(restarts.tier->timeout, restarts.tier->recompute);
  restarts.start();
  request.kv.stop_rule = KvStopRule::wait_complete;
  restarts.alone(request);
  EXPECT_EQ(restarts.tier->recompute, std::chrono::milliseconds(96));
  EXPECT_EQ(restarts.tier->timeout, std::nullopt);
}

TEST(EngineTier, APeerIsToldTheTokensBeforeTheBlocksThatItIsAskedFor) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 100);
  GenerationRequest beginning = request;
  beginning.prompt.resize(40);
  restarts.alone(beginning);
  request.kv_peer = 7;
  restarts.alone(request);
  ASSERT_TRUE(restarts.tier->peer);
  EXPECT_EQ(restarts.tier->peer->worker, 7u);
  EXPECT_EQ(restarts.tier->peer->before,
            std::vector<int32_t>(request.prompt.begin(), request.prompt.begin() + 32));
}

TEST(EngineTier, RequestsThatArriveTogetherReadTheirSharedBlocksOnce) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  restarts.tier->loads = 0;
  EngineWorld& world = *restarts.world;
  std::vector<RequestKey> keys;
  for (int i = 0; i < 5; ++i) keys.push_back(world.submit(request));
  world.step();
  EXPECT_EQ(restarts.tier->loads, 1u);
  restarts.tier->deliver(1000);
  world.run();
  EXPECT_EQ(restarts.tier->loads, 1u);
  EXPECT_EQ(restarts.rows(), 5u * (100 - 96 + 4));
  for (const RequestKey& key : keys) {
    EXPECT_EQ(world.heard[key][0].tokens, world.heard[keys[0]][0].tokens);
    EXPECT_EQ(world.heard[key][0].timings.cached.all, 96u);
  }
}

TEST(EngineTier, FollowersOfAReadWhoseOwnerIsCancelledReadOn) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  EngineWorld& world = *restarts.world;
  const RequestKey owner = world.submit(request);
  const RequestKey follower = world.submit(request);
  world.step();
  restarts.tier->deliver(2);
  world.engine->cancel(owner);
  world.step();
  EXPECT_TRUE(restarts.tier->waiting.front().cancelled->load());
  while (!restarts.tier->waiting.empty()) {
    restarts.tier->deliver(1);
    world.step();
  }
  world.run();
  EXPECT_EQ(world.heard[follower][0].tokens, uncached(request).tokens);
  EXPECT_EQ(world.heard[follower][0].timings.cached.all, 96u);
  EXPECT_EQ(restarts.rows(), 100u - 96 + 4);
}

TEST(EngineTier, WhatCameForARequestThatIsGoneDoesNotEnter) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  EngineWorld& world = *restarts.world;
  const RequestKey key = world.submit(request);
  world.step();
  restarts.tier->deliver(2);
  world.engine->cancel(key);
  world.step();
  EXPECT_EQ(world.engine->stats().tier.read_blocks, 0u);
  restarts.tier->deliver(2);
  world.run();
  EXPECT_EQ(world.engine->stats().tier.read_blocks, 0u);
  EXPECT_EQ(restarts.alone(request).tokens, uncached(request).tokens);
}

TEST(EngineTier, NothingIsReadForOtherTenantsSaltsSecretsKindsOrWindows) {
  Restarts restarts;
  GenerationRequest request = prompt(1, 100);
  request.tenant = "a";
  request.cache_salt = "s";
  restarts.store(request);
  for (const auto& [tenant, salt] : {std::pair("b", "s"), {"a", "t"}, {"", "s"}, {"a", ""}}) {
    GenerationRequest other = request;
    other.tenant = tenant;
    other.cache_salt = salt;
    EXPECT_EQ(restarts.alone(other).timings.cached.all, 0u) << tenant << salt;
    restarts.start();
  }
  EngineOptions options = with_room();
  options.cluster_secret = "another";
  restarts.start(options);
  EXPECT_EQ(restarts.alone(request).timings.cached.all, 0u);
  for (const kernels::KvKinds& kinds :
       {kernels::KvKinds{.v = kernels::KvKind::fp32}, kernels::KvKinds{.k_hadamard = true}}) {
    options = with_room();
    options.kv_kinds = kinds;
    restarts.start(options);
    EXPECT_EQ(restarts.alone(request).timings.cached.all, 0u);
  }
  options = with_room();
  options.local_window = 300;
  restarts.start(options);
  EXPECT_EQ(restarts.alone(request).timings.cached.all, 0u);
  restarts.start();
  EXPECT_EQ(restarts.alone(request).timings.cached.all, 96u);
}

TEST(EngineTier, WhatCameFromMemoryOfTheHostIsToldApart) {
  Restarts restarts;
  restarts.tier->warm = kernels::make_ref_ops();
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  const Heard heard = restarts.alone(request);
  EXPECT_EQ(heard.timings.cached, (CachedTokens{.all = 96, .warm = 96}));
  EXPECT_EQ(restarts.world->engine->stats().prefix_hits_warm, 96u);
  EXPECT_EQ(heard.tokens, uncached(request).tokens);
  restarts.world->engine->forget_cached("nobody");
  EXPECT_FALSE(restarts.tier->stored.empty());
  restarts.world->engine->forget_cached(request.tenant);
  EXPECT_TRUE(restarts.tier->stored.empty());
}

TEST(EngineTier, WhatMemoryOfTheHostHasByNowIsNotLost) {
  Restarts restarts;
  restarts.tier->warm = kernels::make_ref_ops();
  restarts.tier->blind = true;
  GenerationRequest kept = prompt(1, 100);
  kept.kv.ttl_s = 60;
  EngineWorld& world = *restarts.world;
  for (int i = 0; i < 2; ++i) {
    const RequestKey key = world.submit(kept);
    while (!world.heard[key][0].finish) world.step();
  }
  restarts.tier->blind = false;
  restarts.tier->look();  // at both uses of each block, before any of them is there
  world.run();
  EXPECT_EQ(restarts.tier->stored.size(), 6u);
  EXPECT_EQ(world.engine->stats().tier.queued_blocks, 6u);
  EXPECT_EQ(world.engine->stats().tier.lost_blocks, 0u);
}

TEST(EngineTier, AStoreWithoutRoomHoldsUpNothingElse) {
  Restarts restarts;
  restarts.tier->warm = kernels::make_ref_ops();
  restarts.tier->is_cold_too = true;
  restarts.tier->room_bytes = 0;
  GenerationRequest kept = prompt(1, 100);
  kept.kv.ttl_s = 60;
  EngineWorld& world = *restarts.world;
  const RequestKey key = world.submit(kept);
  while (!world.heard[key][0].finish) world.step();
  world.step();
  EXPECT_EQ(restarts.tier->stored.size(), 6u) << "in memory of the host";
  EXPECT_FALSE(world.engine->idle()) << "it owes the store six blocks";
  EXPECT_EQ(restarts.tier->stored_cold.size(), 0u);
  restarts.tier->room_bytes = UINT64_MAX;
  world.run();
  EXPECT_EQ(restarts.tier->stored_cold.size(), 6u);
}

TEST(EngineTier, BlocksOfAnotherSizeAreOfNoUse) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  for (auto& [id, stored] : restarts.tier->stored) {
    if (stored.block.depth != 3) continue;
    const SharedBytes& v = stored.block.v;
    stored.block.v = std::vector<std::byte>(v.begin(), v.end() - 1);
  }
  const Heard heard = restarts.alone(request);
  EXPECT_EQ(heard.timings.cached.cold, 48u);
  EXPECT_EQ(heard.tokens, uncached(request).tokens);
}

TEST(EngineTier, WhatCameAndIsNotTakenHasABoundAndIsForgottenWhenItIsTaken) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  EngineWorld& world = *restarts.world;
  constexpr size_t half = limits::kv_arrivals_bytes_max / 2;
  const std::shared_ptr<std::byte[]> memory(new std::byte[half]);  // nobody looks at it
  const SharedBytes large(memory, {memory.get(), half});
  for (const bool too_many : {false, false, false, true}) {
    world.engine->evict_cached(1000);
    const RequestKey key = world.submit(request);
    world.step();
    MemoryTier::Pending& load = restarts.tier->waiting.front();
    load.blocks[0]->k = large;
    load.blocks[1]->k = large;
    const std::shared_ptr<const std::atomic<bool>> cancelled = load.cancelled;
    restarts.tier->deliver(1);
    ASSERT_FALSE(cancelled->load());
    if (too_many) restarts.tier->deliver(1);
    EXPECT_EQ(cancelled->load(), too_many);
    while (!world.engine->idle()) {
      world.step();
      while (!restarts.tier->waiting.empty()) restarts.tier->deliver(1);
    }
    EXPECT_EQ(world.heard[key][0].timings.cached.all, 0u) << "of another size";
  }
}

TEST(EngineTier, AnEngineThatGoesLeavesItsReadsToThemselves) {
  Restarts restarts;
  const GenerationRequest request = prompt(1, 100);
  restarts.store(request);
  restarts.world->submit(request);
  restarts.world->step();
  int wakes = 0;
  restarts.world->engine->on_arrival([&] { ++wakes; });
  restarts.tier->deliver(1);
  EXPECT_EQ(wakes, 1);
  const auto cancelled = restarts.tier->waiting.front().cancelled;
  restarts.start();
  EXPECT_TRUE(cancelled->load()) << "nobody wants the rest";
  restarts.tier->deliver(10);
  EXPECT_EQ(wakes, 1);
  EXPECT_TRUE(restarts.tier->waiting.empty());
  restarts.world->run();
}

/// Everything at once in a pool that is too small: the bits stay.
TEST(EngineTier, AnyOrderOfReadsEvictionsAndPreemptionsGivesTheSameBits) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Restarts restarts;
    std::vector<GenerationRequest> requests;
    std::vector<Heard> expected;
    for (uint64_t i = 0; i < 6; ++i) {
      requests.push_back(prompt(1 + i / 2, 60));
      const GenerationRequest own = prompt(100 + i, 1 + below(random, 60));
      requests.back().prompt.insert(requests.back().prompt.end(), own.prompt.begin(),
                                    own.prompt.end());
      requests.back().kv.pin = random.below(4) == 0;
      requests.back().kv.stop_rule = static_cast<KvStopRule>(1 + random.below(3));
      expected.push_back(uncached(requests.back()));
    }
    for (int life = 0; life < 3; ++life) {
      EngineOptions options = EngineWorld::with_blocks(12);
      restarts.tier->waiting.clear();
      restarts.start(options);
      EngineWorld& world = *restarts.world;
      std::map<RequestKey, size_t> asked;
      for (int step = 0; step < 150; ++step) {
        if (random.below(8) == 0) {
          const size_t which = below(random, requests.size());
          asked[world.submit(requests[which])] = which;
        }
        if (random.below(10) == 0) world.engine->preempt_all();
        if (random.below(6) == 0) {
          world.engine->evict_cached(below(random, 8));
        }
        if (random.below(20) == 0 && !asked.empty()) {
          const auto victim =
              std::next(asked.begin(), static_cast<ptrdiff_t>(below(random, asked.size())));
          world.engine->cancel(victim->first);
        }
        if (random.below(10) == 0 && !restarts.tier->stored.empty()) {
          const auto at =
              std::next(restarts.tier->stored.begin(),
                        static_cast<ptrdiff_t>(below(random, restarts.tier->stored.size())));
          restarts.tier->stored.erase(at);
        }
        if (random.below(2) == 0 && !restarts.tier->waiting.empty()) {
          if (random.below(6) == 0) {
            restarts.tier->end();
          } else {
            restarts.tier->deliver(random.below(4));
          }
        }
        world.step();
      }
      while (!world.engine->idle()) {
        world.step();
        while (!restarts.tier->waiting.empty()) restarts.tier->deliver(3);
      }
      for (const auto& [key, which] : asked) {
        const Heard& heard = world.heard[key][0];
        if (heard.finish->reason == FinishReason::cancelled) continue;
        EXPECT_EQ(heard.tokens, expected[which].tokens);
      }
    }
  }
}

}  // namespace
}  // namespace outrider::model
