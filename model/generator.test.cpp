#include "model/generator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace outrider::model {
namespace {

std::unique_ptr<Generator> open_tiny(EngineOptions options = {}) {
  options.kv_memory_bytes = uint64_t{4} << 20;
  auto generator = Generator::open("tests/support/models/tiny-llama.gguf", options, 1);
  OUTRIDER_CHECK(generator.ok(), generator.error().message);
  return std::move(generator).value();
}

TEST(Generator, AMissingFileIsAnErrorThatNamesIt) {
  const auto generator = Generator::open("no/such/model.gguf");
  ASSERT_FALSE(generator.ok());
  EXPECT_THAT(generator.error().message, testing::HasSubstr("no/such/model.gguf"));
}

TEST(Generator, StreamedPiecesAreTheWholeText) {
  const auto generator = open_tiny();
  GenerationRequest request = generator->request("The quick brown fox");
  request.stop.max_tokens = 40;
  std::string streamed;
  size_t tokens = 0;
  const auto results = generator->generate(request, [&](std::string_view text, auto ids) {
    streamed += text;
    tokens += ids.size();
    return true;
  });
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_EQ(streamed, results->front().text);
  EXPECT_EQ(tokens, results->front().tokens.size());
  EXPECT_FALSE(streamed.empty());
}

TEST(Generator, ReturningFalseCancels) {
  const auto generator = open_tiny();
  GenerationRequest request = generator->request("The quick brown fox");
  request.stop.max_tokens = 40;
  request.stop.ignore_eos = true;
  int pieces = 0;
  const auto results =
      generator->generate(request, [&](std::string_view, auto) { return ++pieces < 5; });
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->front().finish.reason, FinishReason::cancelled);
  EXPECT_LE(results->front().tokens.size(), 6u);
  EXPECT_TRUE(generator->engine().idle());
}

TEST(Generator, StopsDuringThePrefill) {
  EngineOptions options;
  options.batch_tokens = 4;
  const auto generator = open_tiny(options);
  GenerationRequest request = generator->request("one two three four five six seven eight nine");
  ASSERT_GT(request.prompt.size(), 12u);
  int asked = 0;
  const auto results = generator->generate(request, {}, [&] { return ++asked == 3; });
  ASSERT_TRUE(results.ok());
  EXPECT_EQ(results->front().finish.reason, FinishReason::cancelled);
  EXPECT_TRUE(results->front().tokens.empty());
  EXPECT_EQ(generator->engine().stats().rows, 8u);
}

TEST(Generator, ABatchLargerThanTheQueueGivesEachItsOwnAnswer) {
  EngineOptions options;
  options.waiting = 2;
  const auto generator = open_tiny(options);
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 9; ++i) {
    requests.push_back(generator->request("Once upon a time"));
    requests.back().sampling.seed = i;
    requests.back().choices = 1 + static_cast<uint32_t>(i % 3);
  }
  const auto together = generator->generate_batch(requests);
  ASSERT_TRUE(together.ok()) << together.error().message;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto alone = generator->generate(requests[i]);
    ASSERT_TRUE(alone.ok());
    ASSERT_EQ((*together)[i].size(), requests[i].choices);
    for (size_t c = 0; c < alone->size(); ++c) {
      EXPECT_EQ((*together)[i][c].tokens, (*alone)[c].tokens) << i;
      EXPECT_EQ((*together)[i][c].text, (*alone)[c].text) << i;
    }
  }
}

TEST(Generator, OneBadRequestOfABatchIsAnErrorAndLeavesNothingRunning) {
  const auto generator = open_tiny();
  std::vector<GenerationRequest> requests(2, generator->request("Hello"));
  requests[1].prompt.clear();
  const auto results = generator->generate_batch(requests);
  ASSERT_FALSE(results.ok());
  EXPECT_EQ(results.error().field, "prompt");
  EXPECT_TRUE(generator->engine().idle());
}

TEST(Generator, AConversationRemembersUntilItIsReset) {
  const auto generator = open_tiny();
  GenerationRequest settings;
  settings.sampling.temperature = 0;
  settings.stop.max_tokens = 8;
  const auto first = generator->chat("Hello", settings);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = generator->chat("Hello", settings);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_GT(second->timings.prompt_tokens, first->timings.prompt_tokens);
  generator->reset();
  const auto again = generator->chat("Hello", settings);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->tokens, first->tokens);
  EXPECT_EQ(again->timings.prompt_tokens, first->timings.prompt_tokens);
}

}  // namespace
}  // namespace outrider::model
