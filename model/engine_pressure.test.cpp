#include <gtest/gtest.h>

#include "model/engine_world.test.hpp"
#include "model/scheduler.hpp"

/// What must not change an answer: preemption, parking, small pools, continuation. And what ends
/// one: cancel and deadlines.
namespace outrider::model {
namespace {

constexpr auto k_ms = std::chrono::milliseconds(1);

GenerationRequest penalised(uint64_t seed, uint32_t prompt, uint32_t tokens) {
  GenerationRequest request = EngineWorld::request(seed, prompt, tokens);
  request.sampling.repetition_penalty = 1.2f;
  request.sampling.frequency_penalty = 0.3f;
  request.sampling.top_p = 0.95f;
  request.logprobs = 2;
  return request;
}

TEST(EnginePressure, ACancelledRequestEndsOnceAndFreesItsBlocksInTheNextStep) {
  EngineWorld world;
  GenerationRequest request = EngineWorld::request(1, 40, 50);
  request.choices = 3;
  const RequestKey key = world.submit(request);
  for (int i = 0; i < 5; ++i) world.step();
  world.engine->cancel(key);
  world.engine->cancel({77, 7});
  world.step();
  EXPECT_TRUE(world.engine->idle());
  EXPECT_EQ(world.engine->stats().blocks_free, world.engine->stats().blocks_total);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(world.heard[key][i].finish->reason, FinishReason::cancelled);
    EXPECT_GT(world.heard[key][i].tokens.size(), 1u);
  }
}

TEST(EnginePressure, ADeadlineEndsRunningAndWaitingRequestsFromTheirSubmission) {
  EngineOptions options = EngineWorld::small();
  options.sequences = 1;
  EngineWorld world(options);
  GenerationRequest request = EngineWorld::request(1, 10, 50);
  request.deadline_ms = 10;
  const RequestKey running = world.submit(request);
  const RequestKey waiting = world.submit(request);
  world.clock.advance(9 * k_ms);
  world.step();
  EXPECT_EQ(world.heard[running][0].tokens.size(), 1u);
  world.clock.advance(k_ms);
  world.step();
  EXPECT_EQ(world.heard[running][0].finish->reason, FinishReason::deadline_exceeded);
  EXPECT_EQ(world.heard[waiting][0].finish->reason, FinishReason::deadline_exceeded);
  EXPECT_TRUE(world.engine->idle());
}

TEST(EnginePressure, AParkedRequestGetsNothingAndLosesNothing) {
  EngineWorld world;
  const Heard expected = world.alone(penalised(1, 30, 20))[0];
  const RequestKey key = world.submit(penalised(1, 30, 20));
  const RequestKey mate = world.submit(penalised(2, 30, 20));
  for (int i = 0; i < 6; ++i) world.step();
  const size_t before = world.heard[key][0].tokens.size();
  world.engine->set_parked(key, true);
  EXPECT_EQ(world.engine->stats().parked, 1u);
  for (int i = 0; i < 4; ++i) world.step();
  EXPECT_EQ(world.heard[key][0].tokens.size(), before);
  EXPECT_GT(world.heard[mate][0].tokens.size(), before);
  world.engine->set_parked(key, false);
  world.run();
  EXPECT_EQ(world.heard[key][0].tokens, expected.tokens);
}

TEST(EnginePressure, AParkedRequestCanBeCancelled) {
  EngineWorld world;
  const RequestKey key = world.submit(penalised(1, 30, 20));
  world.step();
  world.engine->set_parked(key, true);
  world.engine->cancel(key);
  world.step();
  EXPECT_TRUE(world.engine->idle());
}

GenerationRequest draft_request(uint64_t seed, uint32_t prompt, uint32_t tokens) {
  GenerationRequest request = EngineWorld::request(seed, prompt, tokens);
  request.draft = DraftKind::same_noise;
  request.logprobs = 4;
  return request;
}

TEST(EnginePressure, ADraftWaitsForNothingThatIsNoneAndChangesNoBitOfIt) {
  EngineOptions options = EngineWorld::small();
  options.sequences = 2;
  options.waiting = 1;
  EngineWorld world(options);
  std::vector<Heard> expected;
  for (uint64_t i = 1; i <= 3; ++i) expected.push_back(world.alone(penalised(i, 30, 20))[0]);
  std::vector<RequestKey> keys;
  for (uint64_t i = 1; i <= 3; ++i) {
    keys.push_back(world.submit(penalised(i, 30, 20)));
    world.step();
  }
  const auto full = world.engine->submit({90, 0}, penalised(4, 30, 20));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::overloaded);
  const RequestKey draft = world.submit(draft_request(5, 20, 9));
  world.step();
  EXPECT_EQ(world.heard[draft][0].tokens.size(), 1u) << "it has a slot at once";
  EXPECT_EQ(world.engine->stats().preemptions, 1u);
  const RequestKey fork{80, 0};
  world.first_index[fork] = 1;
  ASSERT_TRUE(world.engine->fork(draft, fork, world.heard[draft][0].ids()));
  world.step();
  EXPECT_EQ(world.heard[fork][0].tokens.size(), 1u);
  EXPECT_FALSE(world.engine->fork(draft, {81, 0}, world.heard[draft][0].ids()))
      << "two drafts run already";
  world.run();
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(world.heard[keys[i]][0].tokens, expected[i].tokens) << i;
  }
}

TEST(EnginePressure, APromptIsComputedInSmallChunksAsLongAsThereIsADraft) {
  EngineWorld world;
  const RequestKey draft = world.submit(draft_request(1, 20, 40));
  world.step();
  world.engine->set_parked(draft, true);
  world.submit(EngineWorld::request(2, 60, 4));
  const uint64_t before = world.engine->stats().rows;
  world.step();
  EXPECT_EQ(world.engine->stats().rows - before, StepBudget().prefill_beside_drafts);
  world.engine->cancel(draft);
  world.step();
  EXPECT_EQ(world.engine->stats().rows - before, 60u);
  world.run();
}

TEST(EnginePressure, PreemptionAtAnyStepChangesNoBit) {
  EngineWorld world;
  GenerationRequest request = penalised(4, 30, 16);
  request.choices = 2;
  request.prompt_logprobs = 1;
  EngineWorld::Choices expected = world.alone(request);
  for (int at = 0; at < 18; at += 3) {
    world.engine->set_batch_tokens(7);
    const RequestKey key = world.submit(request);
    for (int i = 0; i < at; ++i) world.step();
    world.engine->preempt_all();
    world.run();
    for (uint32_t c = 0; c < 2; ++c) {
      EXPECT_EQ(world.heard[key][c].tokens, expected[c].tokens) << at;
      EXPECT_EQ(world.heard[key][c].prompt_tokens, expected[c].prompt_tokens) << at;
    }
  }
}

TEST(EnginePressure, APoolTooSmallForAllServesAllWithTheSameBits) {
  EngineWorld roomy;
  EngineWorld tight(EngineWorld::with_blocks(5));
  ASSERT_EQ(tight.engine->context_tokens(), 80u);
  std::vector<RequestKey> keys;
  for (uint64_t i = 0; i < 12; ++i) {
    keys.push_back(tight.submit(penalised(i, 5 + 3 * static_cast<uint32_t>(i), 30)));
  }
  tight.run();
  EXPECT_GT(tight.engine->stats().preemptions, 0u);
  for (uint64_t i = 0; i < 12; ++i) {
    const Heard expected = roomy.alone(penalised(i, 5 + 3 * static_cast<uint32_t>(i), 30))[0];
    EXPECT_EQ(tight.heard[keys[i]][0].tokens, expected.tokens) << i;
  }
}

TEST(EnginePressure, ContinuationFromEveryPrefixGivesTheRest) {
  EngineWorld world;
  GenerationRequest request = penalised(5, 20, 15);
  request.stop.stop_strings = {"\x01\x02 never"};
  const Heard whole = world.alone(request)[0];
  for (size_t cut = 0; cut <= whole.tokens.size(); ++cut) {
    const std::vector<int32_t> ids = whole.ids();
    request.committed.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
    const Heard rest = world.alone(request)[0];
    EXPECT_EQ(rest.tokens,
              std::vector<TokenOut>(whole.tokens.begin() + static_cast<std::ptrdiff_t>(cut),
                                    whole.tokens.end()))
        << cut;
    EXPECT_EQ(rest.finish, whole.finish) << cut;
  }
}

TEST(EnginePressure, CommittedTokensThatGoOnAfterTheirEndAreRefused) {
  EngineWorld world;
  GenerationRequest request = EngineWorld::request(5, 20, 3);
  request.committed = {1, 2, 3, 4};
  const auto accepted = world.engine->submit({50, 0}, request);
  ASSERT_FALSE(accepted.ok());
  EXPECT_EQ(accepted.error().field, "committed");
}

TEST(EnginePressure, UrgentRequestsOvertakeButAllEnd) {
  EngineOptions options = EngineWorld::small();
  options.sequences = 1;
  EngineWorld world(options);
  const RequestKey late = world.submit(penalised(1, 20, 20));
  world.step();
  GenerationRequest urgent = penalised(2, 20, 5);
  urgent.priority = -1;
  const RequestKey early = world.submit(urgent);
  while (!world.heard[early][0].finish) world.step();
  EXPECT_FALSE(world.heard[late][0].finish.has_value());
  world.run();
  EXPECT_EQ(world.heard[late][0].tokens.size(), 20u);
}

}  // namespace
}  // namespace outrider::model
