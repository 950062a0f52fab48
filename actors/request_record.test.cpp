#include "actors/request_record.hpp"

#include <gtest/gtest.h>

#include "actors/continuation.hpp"
#include "base/limits.hpp"

namespace outrider::actors {
namespace {

std::vector<TokenOut> tokens_with_logprobs(uint32_t count) {
  std::vector<TokenOut> tokens(count);
  for (uint32_t i = 0; i < count; ++i) {
    tokens[i].id = static_cast<int32_t>(i);
    tokens[i].logprob = TokenLogprob{-1.0f, 1, {limits::top_logprobs_max, {7, -2.0f}}};
  }
  return tokens;
}

TEST(Split, KeepsEachMessageUnderItsBoundAndPutsTheFinishLast) {
  const auto prompt = tokens_with_logprobs(600);
  const auto tokens = tokens_with_logprobs(500);
  const auto messages = split({{1, 1}, 0, 40, tokens, 10, prompt, Finish{}});
  EXPECT_GT(messages.size(), 4u);
  uint32_t index = 40;
  uint32_t prompt_index = 10;
  for (const schema::Tokens& message : messages) {
    const size_t bytes = message.tokens.logprobs.size() + 4 * message.tokens.ids.size() +
                         message.prompt_tokens.logprobs.size() +
                         4 * message.prompt_tokens.ids.size();
    EXPECT_LE(bytes, limits::tokens_message_bytes_max);
    const bool has_prompt = !message.prompt_tokens.ids.empty();
    EXPECT_EQ(message.prompt_first_index, has_prompt ? prompt_index : 0u);
    EXPECT_EQ(message.first_index, index);
    index += static_cast<uint32_t>(message.tokens.ids.size());
    prompt_index += static_cast<uint32_t>(message.prompt_tokens.ids.size());
    EXPECT_EQ(message.finish.none(), &message != &messages.back());
  }
  EXPECT_EQ(index, 540u);
  EXPECT_EQ(prompt_index, 610u);
}

TEST(Split, AFinishAloneIsOneMessage) {
  const auto messages = split({{1, 1}, 2, 7, {}, 0, {}, Finish{FinishReason::cancelled, -1, -1}});
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].choice, 2u);
  EXPECT_EQ(messages[0].first_index, 7u);
}

TEST(Continuation, GoesOnOneTokenBeforeTheEnd) {
  GenerationRequest whole;
  whole.prompt = {1, 2};
  whole.choices = 3;
  whole.sampling.seed = 10;
  whole.prompt_logprobs = 1;
  SessionProgress progress;
  progress.choices = {{{5, 6}, false}, {{}, false}, {{7}, true}};
  progress.prompt_tokens = 2;
  const auto attempts = plan_attempts(progress, {0, 1, 2});
  ASSERT_EQ(attempts, (std::vector<AttemptChoices>{{0}, {1}}));
  const GenerationRequest first = attempt_request(whole, progress, attempts[0]);
  EXPECT_EQ(first.committed, std::vector<int32_t>{5});
  EXPECT_EQ(first.choices, 1u);
  EXPECT_EQ(first.sampling.seed, 10u);
  EXPECT_EQ(first.prompt_logprobs, -1) << "the client has them all";
  EXPECT_EQ(attempt_request(whole, progress, attempts[1]).sampling.seed, 11u);
}

TEST(Continuation, GoesOnAtTheEndWhereDraftsHaveASay) {
  GenerationRequest whole;
  whole.prompt = {1, 2};
  whole.speculation.method = SpeculationMethod::reject_sampling;
  SessionProgress progress;
  progress.choices = {{{5, 6}, false}};
  EXPECT_EQ(attempt_request(whole, progress, {0}).committed, (std::vector<int32_t>{5, 6}));
  whole.sampling.temperature = 0;
  EXPECT_EQ(attempt_request(whole, progress, {0}).committed, std::vector<int32_t>{5}) << "greedy";
}

}  // namespace
}  // namespace outrider::actors
