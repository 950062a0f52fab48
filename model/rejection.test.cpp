#include "model/rejection.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/noise.hpp"

/// A million draws of a draft, verified, against the target's exact distribution by chi-square; and
/// that each way to get it wrong is noticed.
namespace outrider::model {
namespace {

constexpr uint64_t k_draws = 1'000'000;
const std::vector<float> k_target = {2.0f, 1.0f, 0.5f, 0.0f, 1.5f, -1.0f, 0.75f, -0.5f};
const std::vector<float> k_draft = {0.5f, 2.0f, 0.5f, -1.0f, 1.0f, 0.0f, -2.0f, 1.0f};
/// The value that 7 degrees of freedom or fewer exceed with probability 1e-5.
constexpr double k_critical = 35.3;

std::vector<SampleScratch::Candidate> kept(const std::vector<float>& logits,
                                           const SamplingParams& params) {
  SampleScratch scratch;
  return *surviving({.logits = logits, .params = params}, scratch);
}

double chi_square(const std::vector<uint64_t>& counts, const DraftDistribution& expected,
                  uint64_t draws) {
  double sum = 0;
  for (size_t id = 0; id < counts.size(); ++id) {
    const double e = expected.probability(static_cast<int32_t>(id)) * double(draws);
    if (e == 0 && counts[id] > 0) return INFINITY;
    if (e > 0) sum += (double(counts[id]) - e) * (double(counts[id]) - e) / e;
  }
  return sum;
}

using Verify = std::function<int32_t(const SampleRow&, int32_t drafted, const DraftDistribution&)>;

struct Outcome {
  double chi_square = 0;
  double accepted = 0;
};

/// Draft and target have the same seed, as they do in a cluster.
Outcome play(const SamplingParams& params, const Verify& verify, uint64_t draws = k_draws) {
  std::vector<uint64_t> counts(k_target.size(), 0);
  uint64_t same = 0;
  SampleScratch scratch;
  for (uint64_t i = 0; i < draws; ++i) {
    const SampleRow draft = {.logits = k_draft, .params = params, .seed = 7, .position = i};
    const DraftedToken drafted = *draft_token(draft, scratch);
    const SampleRow target = {.logits = k_target, .params = params, .seed = 7, .position = i};
    const int32_t token = verify(target, drafted.id, drafted.drawn_from);
    ++counts[static_cast<size_t>(token)];
    same += token == drafted.id ? 1 : 0;
  }
  return {chi_square(counts, distribution_of(kept(k_target, params)), draws),
          double(same) / double(draws)};
}

int32_t right(const SampleRow& row, int32_t drafted, const DraftDistribution& drawn_from) {
  SampleScratch scratch;
  return *sample_or_reject(row, drafted, drawn_from, scratch);
}

/// Sum of min(p, q): the probability that a draft is taken.
double overlap(const SamplingParams& params) {
  const DraftDistribution p = distribution_of(kept(k_target, params));
  const DraftDistribution q = distribution_of(kept(k_draft, params));
  double sum = 0;
  for (const auto& entry : p.entries) {
    sum += std::min(p.probability(entry.id), q.probability(entry.id));
  }
  return sum;
}

TEST(Rejection, ADrawIsTheTargetsWhateverTheDraftPrefers) {
  const Outcome out = play({}, right);
  EXPECT_LT(out.chi_square, k_critical);
  EXPECT_NEAR(out.accepted, overlap({}), 0.003) << "and a rejected token never comes back";
}

TEST(Rejection, FiltersThatLeaveOtherTokensToEach) {
  SamplingParams params;
  params.temperature = 0.8f;
  for (const int what : {0, 1, 2}) {
    SCOPED_TRACE(what);
    params.top_k = what == 0 ? 3 : 0;
    params.top_p = what == 1 ? 0.7f : 1.0f;
    params.min_p = what == 2 ? 0.3f : 0.0f;
    const Outcome out = play(params, right, k_draws / 10);
    EXPECT_LT(out.chi_square, k_critical);
    EXPECT_NEAR(out.accepted, overlap(params), 0.008);
  }
}

TEST(Rejection, EqualDistributionsAcceptAllButForRounding) {
  const SamplingParams params;
  SampleScratch scratch;
  uint32_t rejected = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const SampleRow row = {.logits = k_target, .params = params, .seed = 5, .position = i};
    const DraftedToken drafted = *draft_token(row, scratch);
    const int32_t token = *sample_or_reject(row, drafted.id, drafted.drawn_from, scratch);
    rejected += token == drafted.id ? 0 : 1;
  }
  EXPECT_LE(rejected, 5u);
}

TEST(Rejection, ADraftDrawsAsItSays) {
  SamplingParams params;
  params.temperature = 0.7f;
  SampleScratch scratch;
  std::vector<uint64_t> counts(k_draft.size(), 0);
  DraftDistribution said;
  for (uint64_t i = 0; i < k_draws; ++i) {
    const auto drafted = draft_token({k_draft, params, 3, i}, scratch);
    said = drafted->drawn_from;
    ++counts[static_cast<size_t>(drafted->id)];
  }
  EXPECT_LT(chi_square(counts, said, k_draws), k_critical);
}

TEST(Rejection, ADraftDrawsFromTheMostProbable) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 100) * 0.01f;
  SampleScratch scratch;
  for (uint64_t i = 0; i < 100; ++i) {
    const auto drafted = draft_token({logits, {}, 3, i}, scratch);
    EXPECT_TRUE(drafted->drawn_from.is_valid_for(drafted->id));
    EXPECT_EQ(drafted->drawn_from.entries.size(), k_draft_tokens_max);
    EXPECT_EQ(drafted->id % 100 >= 98, true) << drafted->id;
  }
}

TEST(Rejection, ADraftDrawsFromNoMoreThanItMaySay) {
  const std::vector<float> logits(5000, 1.0f);
  SamplingParams params;
  params.top_k = 2 * k_draft_tokens_max;
  SampleScratch scratch;
  const auto drafted = draft_token({logits, params, 3, 1}, scratch);
  EXPECT_EQ(drafted->drawn_from.entries.size(), k_draft_tokens_max);
  EXPECT_TRUE(drafted->drawn_from.is_valid_for(drafted->id));
}

TEST(Rejection, WhatIsTooRareToBeSaidIsNotDrawn) {
  // Together once in a thousand draws, each less often than one of the weights says.
  std::vector<float> logits(k_draft_tokens_max, -11.25f);
  logits[5] = 0;
  SampleScratch scratch;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const auto drafted = draft_token({logits, {}, 3, i}, scratch);
    ASSERT_EQ(drafted->id, 5) << "seed 3 position " << i;
    ASSERT_EQ(drafted->drawn_from, (DraftDistribution{{{5, k_draft_weights}}}));
  }
}

TEST(Rejection, TheMostProbableGetsWhatRoundingLeaves) {
  // Shares of 17625.07 and 47909.93.
  const std::vector<SampleScratch::Candidate> candidates = {{.score = -1, .id = 3},
                                                            {.score = 0, .id = 7}};
  EXPECT_EQ(distribution_of(candidates), (DraftDistribution{{{3, 17'625}, {7, 47'910}}}));
}

TEST(Rejection, ADraftKnowsPenaltiesAndWhatIsForbidden) {
  SamplingParams params;
  params.frequency_penalty = 1;
  TokenCounts counts;
  counts.add_output(1);
  counts.add_output(1);
  const int32_t forbidden[] = {4};
  const SampleRow row = {
      .logits = k_draft, .params = params, .seed = 3, .counts = &counts, .forbidden = forbidden};
  SampleScratch scratch;
  const DraftDistribution expected = distribution_of(*surviving(row, scratch));
  ASSERT_EQ(expected.weight(4), 0u);
  ASSERT_LT(expected.weight(1), distribution_of(kept(k_draft, {})).weight(1) / 2);
  EXPECT_EQ(draft_token(row, scratch)->drawn_from, expected);
}

TEST(Rejection, ADraftMostlyExpectsWhatARowWithoutHintsSays) {
  // Each draws for itself, with the same noise: far more often the same than by chance.
  SampleScratch scratch;
  uint32_t same = 0;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const DraftedToken drafted = *draft_token({k_draft, {}, 7, i}, scratch);
    same += *sample({k_target, {}, 7, i}, scratch) == drafted.id ? 1 : 0;
  }
  const DraftDistribution p = distribution_of(kept(k_target, {}));
  double by_chance = 0;
  for (const auto& entry : distribution_of(kept(k_draft, {})).entries) {
    by_chance += entry.weight * p.probability(entry.id) / k_draft_weights;
  }
  EXPECT_GT(same, 2 * by_chance * 10'000);
}

TEST(Rejection, WhatADraftCannotHaveDrawnFromIsKnown) {
  const DraftDistribution good = {{{3, 5}, {7, k_draft_weights - 5}}};
  EXPECT_TRUE(good.is_valid_for(3));
  EXPECT_FALSE(good.is_valid_for(4)) << "not in it";
  EXPECT_FALSE(DraftDistribution{}.is_valid_for(3)) << "nothing in it";
  EXPECT_FALSE((DraftDistribution{{{3, 5}}}).is_valid_for(3)) << "less than all";
  EXPECT_FALSE((DraftDistribution{{{3, 6}, {7, k_draft_weights - 5}}}).is_valid_for(3)) << "more";
  EXPECT_FALSE((DraftDistribution{{{7, k_draft_weights - 5}, {3, 5}}}).is_valid_for(3)) << "order";
  EXPECT_FALSE((DraftDistribution{{{3, 5}, {3, k_draft_weights - 5}}}).is_valid_for(3)) << "twice";
  EXPECT_FALSE((DraftDistribution{{{3, 0}, {7, k_draft_weights}}}).is_valid_for(7)) << "none of 3";
  EXPECT_FALSE((DraftDistribution{{{-1, 5}, {7, k_draft_weights - 5}}}).is_valid_for(7));
  DraftDistribution many;
  for (uint32_t id = 0; id <= k_draft_tokens_max; ++id) many.entries.push_back({int32_t(id), 1});
  many.entries[0].weight = k_draft_weights - k_draft_tokens_max;
  EXPECT_FALSE(many.is_valid_for(0)) << "one entry too many";
}

TEST(Rejection, GreedyIsTheSampler) {
  SamplingParams params;
  params.temperature = 0;
  SampleScratch scratch;
  const SampleRow row = {.logits = k_target, .params = params, .seed = 1, .position = 1};
  EXPECT_EQ(*sample_or_reject(row, 3, {{{3, k_draft_weights}}}, scratch), 0);
  EXPECT_EQ(*sample_or_reject(row, 0, {{{0, k_draft_weights}}}, scratch), 0);
}

TEST(Rejection, AnImpossibleDraftIsRejected) {
  SamplingParams params;
  params.top_k = 2;
  SampleScratch scratch;
  for (uint64_t i = 0; i < 1000; ++i) {
    const SampleRow row = {.logits = k_target, .params = params, .seed = 5, .position = i};
    EXPECT_NE(*sample_or_reject(row, 5, {{{5, k_draft_weights}}}, scratch), 5);
  }
}

TEST(Rejection, ASabotagedResidualIsNoticed) {
  const auto whole = [](const SampleRow& row, int32_t drafted, const DraftDistribution& from) {
    SampleScratch scratch;
    const int32_t token = *sample_or_reject(row, drafted, from, scratch);
    return token == drafted ? token : *sample(row, scratch);  // from p, not from p - q
  };
  EXPECT_GT(play({}, whole, k_draws / 10).chi_square, k_critical);
}

TEST(Rejection, ADraftThatDrewFromAnotherDistributionIsNoticed) {
  const auto claimed = [](const SampleRow& row, int32_t drafted, const DraftDistribution& from) {
    DraftDistribution wrong = from;
    constexpr uint16_t shifted = k_draft_weights / 50;
    wrong.entries[0].weight += shifted;
    wrong.entries[1].weight = static_cast<uint16_t>(wrong.entries[1].weight - shifted);
    return right(row, drafted, wrong);
  };
  EXPECT_GT(play({}, claimed, k_draws / 10).chi_square, k_critical);
}

TEST(Rejection, NoiseThatIsSharedWithTheDraftIsNoticed) {
  // As if acceptance looked at the bits with which the draft drew.
  const auto shared = [](const SampleRow& row, int32_t drafted, const DraftDistribution& from) {
    const auto id = static_cast<uint32_t>(drafted);
    const double u = (noise_bits(row.seed, row.position, id / 4)[id % 4] + 0.5) * 0x1p-32;
    const DraftDistribution p = distribution_of(kept(k_target, row.params));
    if (u * from.probability(drafted) < p.probability(drafted)) return drafted;
    SampleScratch scratch;
    for (uint64_t again = 0;; ++again) {  // the right residual
      SampleRow other = row;
      other.seed = 1000 + again;
      const int32_t token = *sample_or_reject(other, drafted, from, scratch);
      if (token != drafted) return token;
    }
  };
  EXPECT_GT(play({}, shared, k_draws / 10).chi_square, k_critical);
}

}  // namespace
}  // namespace outrider::model
