#include <gtest/gtest.h>

#include <algorithm>

#include "model/engine_world.test.hpp"

/// Prefix caching through the engine: what is computed (counted in rows), what is told, and that
/// nothing but the work changes.
namespace outrider::model {
namespace {

EngineOptions roomy() {
  EngineOptions options = EngineWorld::small();
  options.context_tokens = 512;
  options.sequences = 64;
  options.kv_memory_bytes = uint64_t{32} << 20;
  return options;
}

EngineOptions uncached() {
  EngineOptions options = roomy();
  options.prefix_caching = false;
  return options;
}

/// A request whose prompt is `shared` tokens that all of a family have, then `own` of its own.
GenerationRequest member(uint64_t family, uint32_t shared, uint64_t seed, uint32_t own,
                         uint32_t output) {
  GenerationRequest request = EngineWorld::request(seed, own, output);
  const GenerationRequest prefix = EngineWorld::request(family, shared, 1);
  request.prompt.insert(request.prompt.begin(), prefix.prompt.begin(), prefix.prompt.end());
  request.logprobs = 2;
  return request;
}

uint64_t rows_of(EngineWorld& world, const GenerationRequest& request, Heard& heard) {
  const uint64_t before = world.engine->stats().rows;
  heard = world.alone(request)[0];
  return world.engine->stats().rows - before;
}

TEST(EnginePrefix, ARepeatedPromptComputesWhatFollowsItsLastFullBlock) {
  EngineWorld world(roomy());
  const GenerationRequest request = member(1, 100, 2, 0, 5);
  Heard first;
  Heard second;
  EXPECT_EQ(rows_of(world, request, first), 100u + 4);
  EXPECT_EQ(first.timings.cached.all, 0u);
  EXPECT_EQ(rows_of(world, request, second), 100u - 96 + 4);
  EXPECT_EQ(second.timings.cached.all, 96u);
  EXPECT_EQ(second.tokens, first.tokens);
  const EngineStats stats = world.engine->stats();
  EXPECT_EQ(stats.prefix_queries, 200u);
  EXPECT_EQ(stats.prefix_hits, 96u);
  EXPECT_EQ(stats.blocks_cached, 6u);
}

TEST(EnginePrefix, TheLastTokenIsComputedEvenWhereAllBlocksAreThere) {
  EngineWorld world(roomy());
  const GenerationRequest request = member(1, 96, 2, 0, 3);
  Heard first;
  Heard second;
  rows_of(world, request, first);
  EXPECT_EQ(rows_of(world, request, second), 16u + 2);
  EXPECT_EQ(second.timings.cached.all, 80u);
  EXPECT_EQ(second.tokens, first.tokens);
}

TEST(EnginePrefix, TheNextTurnFindsThePromptAndTheAnswerBeforeIt) {
  EngineWorld world(roomy());
  GenerationRequest turn = member(3, 40, 4, 0, 60);
  const Heard answer = world.alone(turn)[0];
  for (const int32_t id : answer.ids()) turn.prompt.push_back(id);
  for (int32_t id = 1; id <= 10; ++id) turn.prompt.push_back(id);
  Heard heard;
  // 99 of the 100 tokens were computed: 6 blocks.
  EXPECT_EQ(rows_of(world, turn, heard), 110u - 96 + 59);
  EXPECT_EQ(heard.timings.cached.all, 96u);
  EngineWorld plain(uncached());
  EXPECT_EQ(heard.tokens, plain.alone(turn)[0].tokens);
}

TEST(EnginePrefix, NothingIsKeptWhereItIsSwitchedOff) {
  EngineWorld world(uncached());
  const GenerationRequest request = member(1, 100, 2, 0, 5);
  Heard heard;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(rows_of(world, request, heard), 104u);
  EXPECT_EQ(heard.timings.cached.all, 0u);
  EXPECT_EQ(world.engine->stats().blocks_cached, 0u);
  EXPECT_EQ(world.engine->stats().prefix_queries, 0u);
}

TEST(EnginePrefix, CachedBlocksUnderAWindowGiveTheBitsOfAnUncachedRun) {
  EngineOptions cached = roomy();
  EngineOptions plain = uncached();
  cached.local_window = plain.local_window = 50;
  EngineWorld world(cached);
  const Heard expected = EngineWorld(plain).alone(member(1, 200, 3, 9, 5))[0];
  EXPECT_NE(expected.tokens, EngineWorld(uncached()).alone(member(1, 200, 3, 9, 5))[0].tokens);
  Heard heard;
  EXPECT_EQ(rows_of(world, member(1, 200, 2, 40, 5), heard), 240u + 4);
  EXPECT_EQ(rows_of(world, member(1, 200, 3, 9, 5), heard), 209u - 192 + 4);
  EXPECT_EQ(heard.tokens, expected.tokens);
}

TEST(EnginePrefix, LogprobsOfThePromptAreComputedAndHaveTheBitsOfAnUncachedRun) {
  EngineWorld plain(uncached());
  EngineWorld world(roomy());
  GenerationRequest request = member(1, 100, 2, 7, 5);
  const Heard without = world.alone(request)[0];
  request.prompt_logprobs = 3;
  const Heard expected = plain.alone(request)[0];
  Heard heard;
  EXPECT_EQ(rows_of(world, request, heard), 107u + 4);
  EXPECT_EQ(heard.prompt_tokens, expected.prompt_tokens);
  EXPECT_EQ(heard.tokens, expected.tokens);
  EXPECT_EQ(heard.tokens, without.tokens);
  EXPECT_EQ(heard.timings.cached.all, 0u);
  EXPECT_EQ(world.engine->stats().prefix_queries, 107u) << "it did not ask";
}

TEST(EnginePrefix, AScoringRequestThatWasPreemptedTakesWhatItHasTold) {
  EngineWorld world(roomy());
  GenerationRequest request = member(1, 200, 2, 0, 3);
  request.prompt_logprobs = 1;
  const Heard expected = EngineWorld(uncached()).alone(request)[0];
  const uint64_t before = world.engine->stats().rows;
  const RequestKey key = world.submit(request);
  for (int i = 0; i < 2; ++i) world.step();
  world.engine->preempt_all();
  world.run();
  EXPECT_EQ(world.heard[key][0].prompt_tokens, expected.prompt_tokens);
  EXPECT_EQ(world.heard[key][0].tokens, expected.tokens);
  EXPECT_EQ(world.engine->stats().rows - before, 200u + 2);
}

TEST(EnginePrefix, APreemptedChoiceComputesOnlyItsUnfinishedBlockAgain) {
  EngineWorld world(roomy());
  const GenerationRequest request = member(1, 100, 2, 0, 40);
  const Heard expected = EngineWorld(uncached()).alone(request)[0];
  const RequestKey key = world.submit(request);
  for (int i = 0; i < 12; ++i) world.step();
  EXPECT_EQ(world.engine->stats().rows, 110u);
  world.engine->preempt_all();
  world.run();
  EXPECT_EQ(world.engine->stats().rows, 139u + 14) << "110 rows filled 6 blocks";
  EXPECT_EQ(world.heard[key][0].tokens, expected.tokens);
  EXPECT_EQ(world.heard[key][0].timings.cached.all, 0u) << "that was its own work";
}

TEST(EnginePrefix, TimesAddUpFromSubmissionToEndForJoinersAndPreemptedOnes) {
  using std::chrono::milliseconds;
  EngineWorld world(roomy());
  std::map<RequestKey, TimePoint> open;
  for (uint32_t i = 0; i < 8; ++i) {
    const RequestKey key{100 + i, 0};
    open[key] = world.clock.now();
    world.clock.advance(milliseconds(3));  // Elsewhere, before the engine saw it.
    ASSERT_TRUE(world.engine->submit(key, member(1, 400, 10 + i, 9, 4 + i), open[key]));
  }
  for (int steps = 0; !world.engine->idle(); ++steps) {
    if (steps == 5 || steps == 9) world.engine->preempt_all();
    world.clock.advance(milliseconds(7));
    world.step();
    std::erase_if(open, [&](const auto& entry) {
      const Heard& heard = world.heard[entry.first][0];
      if (!heard.finish) return false;
      const RequestTimings& times = heard.timings;
      EXPECT_EQ(std::chrono::microseconds(times.queue_us + times.prefill_us + times.decode_us),
                world.clock.now() - entry.second);
      EXPECT_GE(times.queue_us, 3000u);
      return true;
    });
  }
  EXPECT_TRUE(open.empty());
  EXPECT_GT(world.engine->stats().preemptions, 0u);
}

TEST(EnginePrefix, AContinuedSessionFindsPromptAndCommittedTokens) {
  EngineWorld world(roomy());
  GenerationRequest request = member(1, 50, 2, 0, 60);
  const Heard whole = world.alone(request)[0];
  const std::vector<int32_t> ids = whole.ids();
  request.committed.assign(ids.begin(), ids.begin() + 40);
  Heard rest;
  EXPECT_EQ(rows_of(world, request, rest), 90u - 80 + 19);
  EXPECT_EQ(rest.timings.cached.all, 50u) << "of the prompt";
  EXPECT_EQ(rest.tokens, std::vector<TokenOut>(whole.tokens.begin() + 40, whole.tokens.end()));
}

TEST(EnginePrefix, RequestsThatArriveTogetherComputeTheirSharedPrefixOnce) {
  for (const uint32_t count : {8u, 64u}) {
    EngineWorld plain(uncached());
    EngineWorld world(roomy());
    std::vector<GenerationRequest> requests;
    std::vector<RequestKey> keys;
    for (uint32_t i = 0; i < count; ++i) {
      requests.push_back(member(1, 400, 10 + i, 9, 4));
      keys.push_back(world.submit(requests.back()));
    }
    world.run();
    // 400 tokens are 25 blocks; each computes 9 tokens of its own and 3 that it generated.
    EXPECT_EQ(world.engine->stats().rows, 400u + count * (9 + 3));
    EXPECT_EQ(world.engine->stats().preemptions, 0u);
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_EQ(world.heard[keys[i]][0].timings.cached.all, i == 0 ? 0u : 400u) << i;
      if (i % 8 != 0) continue;
      EXPECT_EQ(world.heard[keys[i]][0].tokens, plain.alone(requests[i])[0].tokens) << i;
    }
  }
}

TEST(EnginePrefix, FollowersLeaveTheirLeaderWhereTheirPromptsPart) {
  EngineWorld world(roomy());
  world.submit(member(1, 480, 1, 0, 2));
  const RequestKey follower = world.submit(member(1, 100, 2, 20, 2));
  uint32_t steps = 0;
  while (!world.heard[follower][0].finish) {
    world.step();
    ++steps;
  }
  EXPECT_LE(steps, 5u) << "96 shared rows, then its own; not after all 480";
  EXPECT_EQ(world.heard[follower][0].timings.cached.all, 96u);
  world.run();
  EXPECT_EQ(world.engine->stats().rows, 480u + 1 + 24 + 1);
}

/// A leader 128 tokens into 400, and two followers that wait for it.
struct Following {
  EngineWorld world{roomy()};
  GenerationRequest request = member(1, 400, 10, 9, 4);
  RequestKey leader = world.submit(request);
  std::vector<RequestKey> followers;

  Following() {
    world.step();
    for (uint64_t i = 0; i < 2; ++i)
      followers.push_back(world.submit(member(1, 400, 11 + i, 9, 4)));
    world.step();
    EXPECT_EQ(world.engine->stats().rows, 128u);
    EXPECT_EQ(world.engine->stats().waiting, 2u);
  }
  void run_followers() {
    while (!world.heard[followers[0]][0].finish || !world.heard[followers[1]][0].finish) {
      world.step();
    }
  }
};

TEST(EnginePrefix, AFollowerGoesOnWhereACancelledLeaderStopped) {
  Following f;
  f.world.engine->cancel(f.leader);
  f.world.run();
  EXPECT_EQ(f.world.engine->stats().rows, 400u + 2 * 12);
}

TEST(EnginePrefix, AFollowerGoesOnWhereAParkedLeaderStoppedAndItTakesTheRestFromIt) {
  Following f;
  f.world.engine->set_parked(f.leader, true);
  f.run_followers();
  EXPECT_EQ(f.world.engine->stats().rows, 400u + 2 * 12);
  f.world.engine->set_parked(f.leader, false);
  f.world.run();
  EXPECT_EQ(f.world.engine->stats().rows, 400u + 3 * 12);
  EXPECT_EQ(f.world.heard[f.leader][0].tokens, EngineWorld(uncached()).alone(f.request)[0].tokens);
}

TEST(EnginePrefix, APreemptedLeaderAndItsFollowersComputeNothingTwice) {
  Following f;
  f.world.engine->preempt_all();
  f.world.run();
  EXPECT_EQ(f.world.engine->stats().rows, 400u + 3 * 12);
}

TEST(EnginePrefix, AnUrgentFollowerLeadsInsteadOfWaitingForAPatientLeader) {
  EngineWorld world(roomy());
  world.submit(member(1, 400, 10, 9, 4));
  world.step();
  GenerationRequest other = member(2, 300, 5, 0, 4);  // Before the leader, after the follower.
  other.priority = -1;
  world.submit(other);
  GenerationRequest urgent = member(1, 400, 11, 9, 1);
  urgent.priority = -2;
  const RequestKey key = world.submit(urgent);
  uint32_t steps = 0;
  while (!world.heard[key][0].finish) {
    world.step();
    ++steps;
  }
  // At least half of 64 rows a step, as without sharing, for the 345 that are missing.
  EXPECT_LE(steps, 11u);
  world.run();
  EXPECT_EQ(world.engine->stats().rows, 400u + 12 + 9 + 303);
}

TEST(EnginePrefix, TenantsAndSaltsShareNothing) {
  EngineWorld world(roomy());
  const auto scoped = [](const char* tenant, const char* salt) {
    GenerationRequest request = member(1, 160, 2, 0, 2);
    request.tenant = tenant;
    request.cache_salt = salt;
    return request;
  };
  const std::vector<std::pair<const char*, const char*>> scopes = {
      {"", ""}, {"public", ""}, {"red", ""}, {"blue", ""}, {"red", "a"}, {"red", "b"}, {"", "a"}};
  std::vector<RequestKey> keys;
  for (const auto& [tenant, salt] : scopes) keys.push_back(world.submit(scoped(tenant, salt)));
  world.run();
  const EngineStats stats = world.engine->stats();
  EXPECT_EQ(stats.rows, scopes.size() * 161);
  EXPECT_EQ(stats.prefix_hits, 0u);
  EXPECT_EQ(stats.blocks_cached, scopes.size() * 10) << "each has blocks of its own";
  for (const RequestKey key : keys) EXPECT_EQ(world.heard[key][0].timings.cached.all, 0u);
  for (const auto& [tenant, salt] : scopes) {
    Heard heard;
    EXPECT_EQ(rows_of(world, scoped(tenant, salt), heard), 17u) << tenant << ' ' << salt;
  }
  EXPECT_EQ(world.engine->stats().blocks_cached, scopes.size() * 10);
  EXPECT_EQ(world.alone(scoped("green", ""))[0].timings.cached.all, 0u);
}

TEST(EnginePrefix, NothingOfItNeedsMoreMemoryThanThereIs) {
  EngineWorld tight(EngineWorld::with_blocks(12));
  EngineWorld plain(uncached());
  std::vector<std::pair<RequestKey, GenerationRequest>> sent;
  for (uint64_t i = 0; i < 40; ++i) {
    GenerationRequest request = member(i % 3, 60, i, 5 + static_cast<uint32_t>(i), 20);
    request.priority = static_cast<int32_t>(i % 2);
    sent.emplace_back(tight.submit(request), request);
    if (i % 4 == 3) tight.step();
  }
  tight.run();
  EXPECT_GT(tight.engine->stats().prefix_evictions, 0u);
  EXPECT_GT(tight.engine->stats().prefix_hits, 0u);
  for (const auto& [key, request] : sent) {
    EXPECT_EQ(tight.heard[key][0].tokens, plain.alone(request)[0].tokens) << key.session;
  }
}

TEST(EnginePrefix, EvictionsLoseNoBitAndTheIndexCanBeEmptied) {
  EngineWorld world(roomy());
  const GenerationRequest request = member(1, 100, 2, 0, 30);
  const Heard expected = world.alone(request)[0];
  world.engine->evict_cached(3);
  EXPECT_EQ(world.alone(request)[0].tokens, expected.tokens);
  world.engine->evict_cached(UINT32_MAX);
  EXPECT_EQ(world.engine->stats().blocks_cached, 0u);
  const Heard heard = world.alone(request)[0];
  EXPECT_EQ(heard.timings.cached.all, 0u);
  EXPECT_EQ(heard.tokens, expected.tokens);
}

TEST(EnginePrefix, EqualChoicesOfOneRequestShareWhatTheyGenerate) {
  EngineWorld world(roomy());
  GenerationRequest request = member(1, 40, 2, 0, 50);
  request.sampling.temperature = 0;
  request.choices = 2;
  EngineWorld::Choices choices = world.alone(request);
  EXPECT_EQ(choices[0].ids(), choices[1].ids());
  EXPECT_EQ(world.engine->stats().blocks_cached, 5u) << "89 computed tokens, once";
}

TEST(EnginePrefix, ATenantsResetLeavesOthersBlocksAndThoseInUse) {
  EngineWorld world(roomy());
  const auto of = [](const char* tenant) {
    GenerationRequest request = member(1, 100, 2, 0, 30);
    request.tenant = tenant;
    return request;
  };
  const Heard expected = world.alone(of("ann"))[0];
  world.alone(of("bob"));
  Heard heard;
  CacheReset reset = world.engine->forget_cached("ann");
  EXPECT_EQ(reset.forgotten, 8u) << "129 tokens have keys and values";
  EXPECT_EQ(reset.held, 0u);
  EXPECT_EQ(rows_of(world, of("bob"), heard), 100u - 96 + 29);
  EXPECT_EQ(rows_of(world, of("ann"), heard), 129u);
  EXPECT_EQ(heard.tokens, expected.tokens);
  const RequestKey running = world.submit(of("ann"));
  world.step();
  EXPECT_EQ(world.engine->forget_cached("nobody").forgotten, 0u);
  reset = world.engine->forget_cached({});
  EXPECT_EQ(reset.forgotten, 8u + 2u) << "bob's, and ann's that she does not use now";
  EXPECT_EQ(reset.held, 6u);
  world.run();
  EXPECT_EQ(world.heard[running][0].tokens, expected.tokens);
  world.engine->check_conservation();
}

TEST(EnginePrefix, CachedBlocksAreReadByTokensAndScope) {
  EngineWorld world(roomy());
  GenerationRequest request = member(1, 100, 2, 0, 30);
  request.tenant = "ann";
  const Heard said = world.alone(request)[0];
  CachedQuery query{.kv_namespace = world.engine->kv_namespace(), .tenant = "ann"};
  query.tokens = request.prompt;
  for (const TokenOut& token : said.tokens) query.tokens.push_back(token.id);
  constexpr uint64_t k_all = ~uint64_t{0};
  EXPECT_EQ(world.engine->read_cached(query, k_all).size(), 8u) << "129 tokens are computed";
  EXPECT_EQ(world.engine->read_cached(query, 1).size(), 1u);
  query.first = 6;
  const auto last = world.engine->read_cached(query, k_all);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_NE(last[0].k, last[1].k);
  CachedQuery rest = query;
  rest.first = 7;
  rest.before = last[0].id;
  const auto one = world.engine->read_cached(rest, k_all);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].k, last[1].k);
  rest.before = last[1].id;
  EXPECT_TRUE(world.engine->read_cached(rest, k_all).empty());
  query.tokens[20] ^= 1;
  EXPECT_TRUE(world.engine->read_cached(query, k_all).empty()) << "other tokens before them";
  query.tokens[20] ^= 1;
  CachedQuery other = query;
  other.tenant = "bob";
  EXPECT_TRUE(world.engine->read_cached(other, k_all).empty());
  other = query;
  other.cache_salt = "salt";
  EXPECT_TRUE(world.engine->read_cached(other, k_all).empty());
  other = query;
  other.kv_namespace[0] ^= 1;
  EXPECT_TRUE(world.engine->read_cached(other, k_all).empty());
  other = query;
  other.first = 9;
  EXPECT_TRUE(world.engine->read_cached(other, k_all).empty());
}

}  // namespace
}  // namespace outrider::model
