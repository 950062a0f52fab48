#include "model/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "model/engine_world.test.hpp"

namespace outrider::model {
namespace {

using testing::HasSubstr;

Error refusal(GenerationRequest request) {
  EngineWorld world;
  const auto accepted = world.engine->submit({1, 0}, std::move(request));
  return accepted.ok() ? Error{} : accepted.error();
}

TEST(Engine, RefusesAPromptThatFillsTheContextAndSaysBothNumbers) {
  const Error error = refusal(EngineWorld::request(1, 128, 4));
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(error.field, "prompt");
  EXPECT_EQ(error.message,
            "the prompt has 128 tokens, the context holds 128 for prompt and output together");
}

TEST(Engine, RefusesIdsOutsideTheVocabularyAndEmptyOrImpossibleRequests) {
  GenerationRequest request = EngineWorld::request(1, 4, 4);
  request.prompt[2] = -1;
  EXPECT_EQ(refusal(request).field, "prompt");
  request.prompt[2] = static_cast<int32_t>(EngineWorld::model()->config.vocab);
  EXPECT_EQ(refusal(request).field, "prompt");
  request.prompt.clear();
  EXPECT_EQ(refusal(request).field, "prompt");
  request = EngineWorld::request(1, 4, 4);
  request.choices = 0;
  EXPECT_EQ(refusal(request).field, "n");
  request.choices = 1'000'000;
  EXPECT_EQ(refusal(request).field, "n");
  request.choices = 2;
  request.committed = {1};
  EXPECT_EQ(refusal(request).field, "committed");
  request.choices = 1;
  request.committed = {-5};
  EXPECT_EQ(refusal(request).field, "committed");
  request.committed.clear();
  request.stop.stop_strings = {""};
  EXPECT_EQ(refusal(request).field, "stop");
}

TEST(Engine, RefusesOptionsThatNoModelOrMemoryCanMeet) {
  const SteadyClock clock;
  const auto field = [&](EngineOptions options) {
    const auto engine = Engine::create(EngineWorld::model(), options, clock);
    return engine.ok() ? std::string() : engine.error().field;
  };
  EngineOptions options = EngineWorld::small();
  options.batch_tokens = 0;
  EXPECT_EQ(field(options), "batch_tokens");
  options = EngineWorld::small();
  options.sequences = 1'000'000;
  EXPECT_EQ(field(options), "sequences");
  options = EngineWorld::small();
  options.block_tokens = 17;
  EXPECT_EQ(field(options), "block_tokens");
  options = EngineWorld::small();
  options.context_tokens = 1'000'000;
  EXPECT_EQ(field(options), "context_tokens");
  options = EngineWorld::small();
  options.kv_memory_bytes = 100;
  EXPECT_EQ(field(options), "kv_memory");
}

TEST(Engine, ADecodePlanBoundsChunksByWhatStandsBeforeThemAndChangesNoBit) {
  EngineOptions options = EngineWorld::small();
  options.decode_plan = {.contexts = {24, 60}, .rows = {10, 20, 0}};
  EngineWorld bounded(options);
  EngineWorld free;
  GenerationRequest request = EngineWorld::request(5, 120, 3);
  request.logprobs = 3;
  // Up to 24 tokens 10 rows each, up to 60 then 20, then what is left.
  const RequestKey key = bounded.submit(request);
  for (const uint64_t rows : {10, 20, 30, 50, 70, 120, 121, 122}) {
    bounded.step();
    EXPECT_EQ(bounded.engine->stats().rows, rows);
  }
  EXPECT_EQ(bounded.heard[key][0].tokens, free.alone(request)[0].tokens);
  EXPECT_EQ(bounded.engine->fingerprint(), free.engine->fingerprint());
}

TEST(Engine, AWindowChangesAnswersWhereASequenceOutgrowsItAndOnlyThere) {
  EngineOptions options = EngineWorld::small();
  GenerationRequest request = EngineWorld::request(7, 90, 20);
  request.logprobs = 3;
  EngineWorld plain(options);
  const auto expected = plain.alone(request)[0].tokens;
  for (const uint32_t window : {109u, 127u}) {
    options.local_window = window;
    EngineWorld wide(options);
    EXPECT_EQ(wide.alone(request)[0].tokens, expected) << "109 rows are computed";
    EXPECT_NE(wide.engine->fingerprint(), plain.engine->fingerprint());
  }
  options.local_window = 128;
  EXPECT_EQ(EngineWorld(options).engine->fingerprint(), plain.engine->fingerprint())
      << "a window that no sequence outgrows is none";
  options.local_window = 108;
  const auto tokens = EngineWorld(options).alone(request)[0].tokens;
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end() - 1, expected.begin()));
  EXPECT_NE(tokens.back(), expected.back()) << "its row does not see position 0";
}

TEST(Engine, SaysOverloadedWhenItsQueueIsFull) {
  EngineOptions options = EngineWorld::small();
  options.waiting = 2;
  EngineWorld world(options);
  world.submit(EngineWorld::request(1, 4, 4));
  world.submit(EngineWorld::request(2, 4, 4));
  const auto third = world.engine->submit({99, 0}, EngineWorld::request(3, 4, 4));
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, ErrorCode::overloaded);
  world.step();
  EXPECT_TRUE(world.engine->submit({99, 0}, EngineWorld::request(3, 4, 4)).ok());
  world.run();
}

TEST(Engine, WhatWasLetInOnceIsNeverOneTooManyAndWaitsBeforeOthers) {
  EngineOptions options = EngineWorld::small();
  options.sequences = 1;
  options.waiting = 1;
  EngineWorld world(options);
  world.submit(EngineWorld::request(1, 4, 4));
  world.step();
  const RequestKey waiting = world.submit(EngineWorld::request(2, 4, 4));
  ASSERT_FALSE(world.engine->submit({99, 0}, EngineWorld::request(3, 4, 4)).ok());
  GenerationRequest moved = EngineWorld::request(4, 4, 4);
  moved.continues = true;
  const RequestKey first = world.submit(moved);
  while (world.heard[first][0].tokens.empty()) world.step();
  EXPECT_TRUE(world.heard[waiting][0].tokens.empty());
  world.run();
  EXPECT_EQ(world.heard[waiting][0].tokens.size(), 4u);
}

TEST(Engine, CountsItsQueueInChoices) {
  EngineOptions options = EngineWorld::small();
  options.waiting = 2;
  EngineWorld world(options);
  GenerationRequest two = EngineWorld::request(1, 4, 4);
  two.choices = 2;
  world.submit(two);
  EXPECT_EQ(world.engine->stats().waiting, 2u);
  EXPECT_FALSE(world.engine->submit({99, 0}, EngineWorld::request(2, 4, 4)).ok());
  world.run();
}

TEST(Engine, CommittedTokensThatGoThroughTheModelAgainAreRows) {
  EngineOptions options = EngineWorld::small();
  options.batch_tokens = 4;
  EngineWorld world(options);
  GenerationRequest request = EngineWorld::request(1, 4, 30);
  request.committed.assign(20, 5);
  world.first_index[world.submit(request)] = 20;
  for (uint64_t step = 1; step <= 6; ++step) {
    world.step();
    EXPECT_EQ(world.engine->stats().rows, 4 * step);
    EXPECT_EQ(world.engine->stats().generated_tokens, step / 6)
        << "only the last one gives a token";
  }
  world.run();
}

TEST(Engine, EndsWithLengthAtMaxTokensOrWhereTheContextEnds) {
  EngineWorld world;
  Heard heard = world.alone(EngineWorld::request(1, 10, 7))[0];
  EXPECT_EQ(heard.tokens.size(), 7u);
  EXPECT_EQ(heard.finish->reason, FinishReason::length);
  EXPECT_EQ(heard.timings.prompt_tokens, 10u);
  heard = world.alone(EngineWorld::request(1, 120, 500))[0];
  EXPECT_EQ(heard.tokens.size(), 8u);
  EXPECT_EQ(heard.finish->reason, FinishReason::length);
}

TEST(Engine, AStopIdEndsTheChoiceAsItsLastToken) {
  EngineWorld world;
  GenerationRequest request = EngineWorld::request(3, 10, 30);
  const std::vector<int32_t> free = world.alone(request)[0].ids();
  const auto at = std::find(free.begin(), free.end(), free[12]) - free.begin();
  request.stop.stop_token_ids = {free[12]};
  const Heard heard = world.alone(request)[0];
  EXPECT_EQ(heard.ids(), std::vector<int32_t>(free.begin(), free.begin() + at + 1));
  EXPECT_EQ(heard.finish->reason, FinishReason::stop);
  EXPECT_EQ(heard.finish->stop_token, free[12]);
  EXPECT_EQ(heard.finish->stop_string, -1);
}

TEST(Engine, EosEndsAChoiceUnlessIgnoredAndWaitsForMinTokens) {
  EngineWorld world;
  const int32_t eos = EngineWorld::model()->tokenizer->eos();
  GenerationRequest request = EngineWorld::request(3, 10, 12);
  request.sampling.logit_bias = {{eos, 100.0f}};
  EXPECT_EQ(world.alone(request)[0].tokens.size(), 12u);
  request.stop.ignore_eos = false;
  Heard heard = world.alone(request)[0];
  EXPECT_EQ(heard.ids(), std::vector<int32_t>{eos});
  EXPECT_EQ(heard.finish->stop_token, eos);
  request.stop.min_tokens = 5;
  heard = world.alone(request)[0];
  EXPECT_EQ(heard.tokens.size(), 6u);
  EXPECT_EQ(heard.finish->stop_token, eos);
}

TEST(Engine, AStopStringEndsTheChoiceAndIsNamedByIndex) {
  EngineWorld world;
  const Tokenizer& tokenizer = *EngineWorld::model()->tokenizer;
  GenerationRequest request = EngineWorld::request(5, 10, 40);
  const Heard free = world.alone(request)[0];
  for (size_t i = 3; i < free.tokens.size(); ++i) {
    const std::string text(tokenizer.token_bytes(free.tokens[i].id));
    if (text.size() < 2 || !utf8_valid(text)) continue;
    request.stop.stop_strings = {"never \x01 written", text};
    const Heard heard = world.alone(request)[0];
    ASSERT_EQ(heard.finish->reason, FinishReason::stop);
    EXPECT_EQ(heard.finish->stop_string, 1);
    EXPECT_LE(heard.tokens.size(), i + 1);
    return;
  }
  FAIL() << "no token of two valid bytes";
}

TEST(Engine, LogprobsAreThoseOfPromptScoring) {
  EngineWorld world;
  GenerationRequest request = EngineWorld::request(6, 40, 20);
  request.logprobs = 3;
  const Heard heard = world.alone(request)[0];
  GenerationRequest scoring = request;
  for (const int32_t id : heard.ids()) scoring.prompt.push_back(id);
  scoring.prompt_logprobs = 3;
  scoring.stop.max_tokens = 0;
  const Heard scored = world.alone(scoring)[0];
  EXPECT_TRUE(scored.tokens.empty());
  ASSERT_EQ(scored.prompt_tokens.size(), 60u);
  EXPECT_FALSE(scored.prompt_tokens[0].logprob.has_value());
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(scored.prompt_tokens[i].id, scoring.prompt[i]);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(scored.prompt_tokens[40 + i], heard.tokens[i]) << i;
}

TEST(Engine, ChoicesAreThoseOfRequestsWithTheNextSeedsAndShareThePrompt) {
  EngineWorld world;
  GenerationRequest request = EngineWorld::request(7, 70, 12);
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 4; ++i) {
    GenerationRequest single = request;
    single.sampling.seed += i;
    expected.push_back(world.alone(single)[0].ids());
  }
  EXPECT_NE(expected[0], expected[1]);
  request.choices = 4;
  world.engine->evict_cached(UINT32_MAX);
  const uint64_t computed = world.engine->stats().rows;
  EngineWorld::Choices choices = world.alone(request);
  EXPECT_EQ(world.engine->stats().rows - computed, 70u + 4 * 11) << "the prompt is computed once";
  ASSERT_EQ(choices.size(), 4u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(choices[i].ids(), expected[i]) << i;
}

TEST(Engine, MoreChoicesThanSlotsGetTheSameTokens) {
  EngineWorld world;
  GenerationRequest request = EngineWorld::request(8, 20, 10);
  request.choices = 8;
  EngineWorld::Choices expected = world.alone(request);
  EngineOptions options = EngineWorld::small();
  options.sequences = 3;
  EngineWorld narrow(options);
  EngineWorld::Choices choices = narrow.alone(request);
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(choices[i].ids(), expected[i].ids()) << i;
}

TEST(Engine, ALogitThatOverflowsFailsTheRequestAndNoOther) {
  EngineWorld world;
  GenerationRequest bad = EngineWorld::request(9, 10, 5);
  bad.sampling.logit_bias = {{3, std::numeric_limits<float>::infinity()}};
  const RequestKey failed = world.submit(bad);
  const RequestKey fine = world.submit(EngineWorld::request(10, 10, 5));
  world.run();
  EXPECT_EQ(world.heard[failed][0].finish->reason, FinishReason::failed);
  EXPECT_THAT(world.heard[failed][0].error, HasSubstr("overflow"));
  EXPECT_EQ(world.heard[fine][0].tokens.size(), 5u);
}

TEST(Engine, TheFingerprintIsThatOfTheNumbersNotOfTheMachine) {
  EngineOptions options = EngineWorld::small();
  const Digest256 first = EngineWorld(options).engine->fingerprint();
  options.batch_tokens = 7;
  options.block_tokens = 32;
  EXPECT_EQ(EngineWorld(options).engine->fingerprint(), first);
  options.context_tokens = 64;
  EXPECT_NE(EngineWorld(options).engine->fingerprint(), first) << "it ends answers";
  options.context_tokens = 128;
  options.kv_kinds.k = kernels::KvKind::fp32;
  const Digest256 other = EngineWorld(options).engine->fingerprint();
  EXPECT_NE(other, first);
  options.kv_kinds.k_hadamard = true;
  EXPECT_NE(EngineWorld(options).engine->fingerprint(), other);
}

TEST(Engine, TurnsKeysOnlyWhereTheHeadSizeAllows) {
  const ManualClock clock;
  auto loaded = load_model("tests/support/models/tiny-llama.gguf",
                           kernels::make_cpu_ops(1, kernels::default_isa()));
  auto model = std::const_pointer_cast<LoadedModel>(*loaded);
  model->config.head_dim = 80;
  EngineOptions options = EngineWorld::small();
  options.kv_kinds.k_hadamard = true;
  const auto refused = Engine::create(std::move(model), options, clock);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "kv-kind");
}

TEST(Engine, TheFingerprintCoversTheChatTemplate) {
  const ManualClock clock;
  const auto of = [&](const Result<ChatTemplate>& chat) {
    auto loaded = load_model("tests/support/models/tiny-llama.gguf",
                             kernels::make_cpu_ops(1, kernels::default_isa()));
    auto model = std::const_pointer_cast<LoadedModel>(*loaded);
    model->chat_template = std::make_shared<const ChatTemplate>(*chat);
    return (*Engine::create(std::move(model), EngineWorld::small(), clock))->fingerprint();
  };
  const Digest256 first = of(ChatTemplate::chatml());
  EXPECT_EQ(of(ChatTemplate::chatml()), first);
  EXPECT_NE(of(ChatTemplate::parse("{{ messages }}", "", "")), first);
}

}  // namespace
}  // namespace outrider::model
