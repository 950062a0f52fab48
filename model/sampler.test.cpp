#include "model/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/fmath.hpp"
#include "base/philox.hpp"
#include "model/noise.hpp"
#include "model/sampler_filters.hpp"

namespace outrider::model {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

int32_t pick(const std::vector<float>& logits, const SamplingParams& params,
             const TokenCounts* counts = nullptr, std::vector<int32_t> forbidden = {}) {
  SampleScratch scratch;
  const auto id = sample(
      {.logits = logits, .params = params, .counts = counts, .forbidden = forbidden}, scratch);
  return id.ok() ? *id : -1;
}

std::vector<int32_t> survivors(const std::vector<float>& logits, const SamplingParams& params) {
  SampleScratch scratch;
  const auto kept = surviving({.logits = logits, .params = params}, scratch);
  std::vector<int32_t> ids;
  for (const auto& c : kept.value()) ids.push_back(c.id);
  return ids;
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOfATie) {
  EXPECT_EQ(pick({1, 5, 2, 5}, greedy()), 1);
  EXPECT_EQ(pick({-3, -3}, greedy()), 0);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2;
  TokenCounts counts;
  counts.add_prompt(0);
  counts.add_output(1);
  std::vector<float> logits = {4, -1, 3};
  counts.penalize(params, logits);
  EXPECT_THAT(logits, ElementsAre(2, -2, 3));
  EXPECT_EQ(pick({4, -1, 3}, params, &counts), 2);
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountTheOutputOnly) {
  SamplingParams params = greedy();
  params.presence_penalty = 0.5f;
  params.frequency_penalty = 0.25f;
  TokenCounts counts;
  counts.add_prompt(0);
  counts.add_output(1);
  counts.add_output(1);
  std::vector<float> logits = {4, 4, 4};
  counts.penalize(params, logits);
  EXPECT_THAT(logits, ElementsAre(4, 3, 4));
}

TEST(Sampler, BiasComesBeforeTheChoiceAndIgnoresUnknownIds) {
  SamplingParams params = greedy();
  params.logit_bias = {{2, 10.0f}, {99, 100.0f}};
  EXPECT_EQ(pick({1, 5, 2}, params), 2);
}

TEST(Sampler, ForbiddenIdsAreNeverChosen) {
  EXPECT_EQ(pick({1, 5, 2}, greedy(), nullptr, {1}), 2);
  EXPECT_EQ(pick({1, 5, 2}, greedy(), nullptr, {0, 1, 2}), -1);
  SamplingParams params;
  for (params.seed = 0; params.seed < 200; ++params.seed) {
    EXPECT_NE(pick({1, 5, 2}, params, nullptr, {1}), 1);
  }
}

TEST(Sampler, ALogitThatIsNotFiniteIsAFailure) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(pick({1, bad, 2}, greedy()), -1);
    EXPECT_EQ(pick({1, bad, 2}, SamplingParams{}), -1);
    SampleScratch scratch;
    EXPECT_FALSE(token_logprob(std::vector<float>{1, bad, 2}, 0, 2, scratch).ok());
  }
  SamplingParams params;
  params.logit_bias = {{0, infinity}};
  EXPECT_EQ(pick({1, 2}, params), -1);
}

TEST(Sampler, TopKKeepsTheBestAndTheLowestIdsOfATie) {
  SamplingParams params;
  params.top_k = 2;
  EXPECT_THAT(survivors({1, 3, 3, 3, 2}, params), ElementsAre(1, 2));
  params.top_k = 99;
  EXPECT_THAT(survivors({1, 3}, params), ElementsAre(0, 1));
}

TEST(Sampler, TopPKeepsTheSmallestPrefixThatReachesItAndAtLeastOne) {
  // Probabilities 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {log_f32(1), log_f32(2), log_f32(3), log_f32(4)};
  SamplingParams params;
  params.top_p = 0.65f;
  EXPECT_THAT(survivors(logits, params), ElementsAre(2, 3));
  params.top_p = 0.75f;
  EXPECT_THAT(survivors(logits, params), ElementsAre(1, 2, 3));
  params.top_p = 0;
  EXPECT_THAT(survivors(logits, params), ElementsAre(3));
}

TEST(Sampler, TopPSeesTheDistributionThatTopKLeft) {
  const std::vector<float> logits = {log_f32(1), log_f32(2), log_f32(3), log_f32(4)};
  SamplingParams params;
  params.top_k = 2;
  params.top_p = 0.57f;  // 0.4 / 0.7 = 0.571 reaches it, 0.4 would not
  EXPECT_THAT(survivors(logits, params), ElementsAre(3));
}

TEST(Sampler, MinPIsRelativeToTheMostProbable) {
  const std::vector<float> logits = {log_f32(1), log_f32(2), log_f32(3), log_f32(4)};
  SamplingParams params;
  params.min_p = 0.6f;
  EXPECT_THAT(survivors(logits, params), UnorderedElementsAre(2, 3));
}

TEST(Sampler, TopPOnALargeVocabularyEqualsFullSorting) {
  Random random(7);
  for (int round = 0; round < 40; ++round) {
    // The highest is 0, so that scores at temperature 1 are the logits themselves.
    std::vector<float> logits(3000);
    for (float& v : logits) v = -10.0f * random.uniform() * random.uniform();
    logits[random.below(3000)] = 0;
    SamplingParams params;
    params.top_p = round < 20 ? random.uniform() : 1.0f - 0.01f * random.uniform();
    std::vector<SampleScratch::Candidate> sorted;
    for (int32_t i = 0; i < 3000; ++i) sorted.push_back({logits[static_cast<size_t>(i)], i});
    const double wanted = double{params.top_p} * mass_of(sorted);
    std::sort(sorted.begin(), sorted.end(), more_probable);
    std::vector<int32_t> expected;
    double sum = 0;
    for (const auto& c : sorted) {
      if (!expected.empty() && sum >= wanted) break;
      sum += double{exp_f32(c.score)};
      expected.push_back(c.id);
    }
    std::vector<int32_t> kept = survivors(logits, params);
    std::sort(kept.begin(), kept.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(kept, expected) << round;
  }
}

TEST(Sampler, TheNoiseBoundHoldsForEveryKindOfDraw) {
  Random random(3);
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t bits = i < 40'000   ? 0xFFFFFFFFu - static_cast<uint32_t>(i) / 2
                          : i < 80'000 ? static_cast<uint32_t>(i)
                                       : random.next_u32();
    ASSERT_GE(gumbel_bound(bits), gumbel(bits)) << bits;
  }
  EXPECT_GT(gumbel(0xFFFFFFFFu), 22.8f);
  EXPECT_LT(gumbel(0), -2.8f);
}

TEST(Sampler, SkippingNoiseThatCannotWinChangesNothing) {
  Random random(11);
  SamplingParams params;
  for (uint64_t position = 0; position < 300; ++position) {
    std::vector<float> logits;
    for (int i = 0; i < 500; ++i) logits.push_back(12 * random.uniform());
    SampleScratch scratch;
    const SampleRow row = {.logits = logits, .params = params, .seed = 5, .position = position};
    const float highest = *std::max_element(logits.begin(), logits.end());
    float best = -std::numeric_limits<float>::infinity();
    int32_t expected = -1;
    for (uint32_t id = 0; id < logits.size(); ++id) {
      const float value = (logits[id] - highest) / params.temperature +
                          gumbel(noise_bits(5, position, id / 4)[id % 4]);
      if (value > best) {
        best = value;
        expected = static_cast<int32_t>(id);
      }
    }
    EXPECT_EQ(*sample(row, scratch), expected);
  }
}

TEST(Sampler, TheChoiceIsFixedForAGivenSeedPositionAndRow) {
  // A worked example: whoever changes these values changes every seeded answer.
  SamplingParams params;
  params.temperature = 0.8f;
  params.top_k = 4;
  std::vector<int32_t> chosen;
  SampleScratch scratch;
  const std::vector<float> logits = {0.5f, 1.0f, 1.5f, 2.0f, -1.0f, 1.25f};
  for (uint64_t position = 10; position < 22; ++position) {
    chosen.push_back(
        *sample({.logits = logits, .params = params, .seed = 42, .position = position}, scratch));
  }
  EXPECT_THAT(chosen, ElementsAre(2, 1, 1, 3, 2, 1, 1, 3, 3, 3, 3, 3));
}

/// Rows of a vocabulary of 1000, and what another model would make of each.
struct TwoModels {
  std::vector<float> draft;
  std::vector<float> target;
  explicit TwoModels(uint32_t row) {
    for (uint32_t id = 0; id < 1000; ++id) {
      const auto bits = philox4x32({id, row, 0, 1}, {7, 7});
      draft.push_back(gumbel(bits[0]) * 1.5f);
      target.push_back(draft.back() + gumbel(bits[1]) * 0.8f);
    }
  }
};

TEST(ChoiceShares, AreProbabilitiesWithoutNoise) {
  const SamplingParams params = greedy();
  SampleScratch scratch;
  const std::vector<float> logits = {1, 3, 2, 3};
  const auto shares = choice_shares({.logits = logits, .params = params}, 1, 3, scratch);
  const auto known = token_logprob(logits, 1, 3, scratch);
  ASSERT_TRUE(shares.ok());
  EXPECT_NEAR(shares->logprob, known->logprob, 1e-5);
  EXPECT_EQ(shares->rank, 1u);
  ASSERT_EQ(shares->top.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(shares->top[i].first, known->top[i].first);
    EXPECT_NEAR(shares->top[i].second, known->top[i].second, 1e-5);
  }
}

TEST(ChoiceShares, PutTheChoiceFirstWhateverTheFilters) {
  SamplingParams params;
  SampleScratch scratch;
  for (uint32_t i = 0; i < 400; ++i) {
    params.temperature = i % 4 == 0 ? 0.0f : 0.3f * static_cast<float>(i % 4);
    params.top_k = i % 3 == 0 ? 40 : 0;
    params.top_p = i % 5 == 0 ? 0.9f : 1.0f;
    params.repetition_penalty = i % 7 == 0 ? 1.3f : 1.0f;
    TokenCounts counts;
    counts.add_output(static_cast<int32_t>(i));
    const TwoModels rows(i);
    const SampleRow row = {
        .logits = rows.draft, .params = params, .seed = 5, .position = i, .counts = &counts};
    const auto id = sample(row, scratch);
    ASSERT_TRUE(id.ok());
    const auto shares = choice_shares(row, *id, 4, scratch);
    ASSERT_TRUE(shares.ok());
    EXPECT_EQ(shares->rank, 1u) << i;
    EXPECT_EQ(shares->top.front(), std::pair(*id, shares->logprob)) << i;
    EXPECT_LE(shares->logprob, 1e-5f);
  }
}

/// The more a token was ahead, the more often another model chooses it with the same noise; the
/// second is its likeliest replacement.
TEST(ChoiceShares, TellHowOftenAnotherModelChoosesTheSame) {
  SamplingParams params;
  params.temperature = 1;
  SampleScratch scratch;
  std::array<uint32_t, 4> claims{}, agreed{};
  uint32_t seconds = 0, others = 0;
  for (uint32_t i = 0; i < 1500; ++i) {
    const TwoModels rows(i);
    const auto of = [&](const std::vector<float>& logits) {
      return SampleRow{.logits = logits, .params = params, .seed = 9, .position = i};
    };
    const int32_t drafted = *sample(of(rows.draft), scratch);
    const int32_t wanted = *sample(of(rows.target), scratch);
    const auto shares = choice_shares(of(rows.draft), drafted, 4, scratch);
    const auto part = std::min<size_t>(static_cast<size_t>(exp_f32(shares->logprob) * 4), 3);
    ++claims[part];
    agreed[part] += drafted == wanted ? 1 : 0;
    if (drafted == wanted) continue;
    seconds += shares->top[1].first == wanted ? 1 : 0;
    others += shares->top[2].first == wanted ? 1 : 0;
  }
  const auto share = [&](size_t part) { return 1.0 * agreed[part] / claims[part]; };
  for (const uint32_t count : claims) ASSERT_GT(count, 75u);
  for (size_t part = 1; part < 4; ++part) EXPECT_GT(share(part), share(part - 1) + 0.05) << part;
  EXPECT_GT(share(3), 0.8);
  EXPECT_GT(seconds, others + others / 4);
}

TEST(Logprobs, AreTheLogSoftmaxWithRankAndAlternatives) {
  const std::vector<float> logits = {log_f32(1), log_f32(2), log_f32(3), log_f32(4)};
  SampleScratch scratch;
  const TokenLogprob out = token_logprob(logits, 1, 2, scratch).value();
  EXPECT_NEAR(out.logprob, -1.6094379, 1e-6);
  EXPECT_EQ(out.rank, 3u);
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_EQ(out.top[0].first, 3);
  EXPECT_NEAR(out.top[0].second, -0.9162907, 1e-6);
  EXPECT_EQ(out.top[1].first, 2);
}

TEST(Logprobs, TiesRankByIdAndMoreAlternativesThanTokensAreAllTokens) {
  SampleScratch scratch;
  const TokenLogprob out = token_logprob(std::vector<float>{1, 1, 1}, 2, 20, scratch).value();
  EXPECT_EQ(out.rank, 3u);
  ASSERT_EQ(out.top.size(), 3u);
  EXPECT_EQ(out.top[0].first, 0);
  EXPECT_TRUE(token_logprob(std::vector<float>{1, 1, 1}, 2, 0, scratch).value().top.empty());
}

}  // namespace
}  // namespace outrider::model
