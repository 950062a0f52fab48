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
    const double e = double{expected.probability(static_cast<int32_t>(id))} * double(draws);
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

/// The draft draws with a seed of its own.
Outcome play(const SamplingParams& params, const Verify& verify, uint64_t draws = k_draws) {
  const DraftDistribution drawn_from = distribution_of(kept(k_draft, params));
  std::vector<uint64_t> counts(k_target.size(), 0);
  uint64_t same = 0;
  SampleScratch scratch;
  for (uint64_t i = 0; i < draws; ++i) {
    const SampleRow draft = {.logits = k_draft, .params = params, .seed = 99, .position = i};
    const int32_t drafted = *sample(draft, scratch);
    const SampleRow target = {.logits = k_target, .params = params, .seed = 7, .position = i};
    const int32_t token = verify(target, drafted, drawn_from);
    ++counts[static_cast<size_t>(token)];
    same += token == drafted ? 1 : 0;
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
    sum += std::min(double{entry.probability}, double{q.probability(entry.id)});
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

TEST(Rejection, EqualDistributionsAcceptAll) {
  const SamplingParams params;
  const DraftDistribution same = distribution_of(kept(k_target, params));
  SampleScratch scratch;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const SampleRow row = {.logits = k_target, .params = params, .seed = 5, .position = i};
    const int32_t drafted = *sample({k_target, params, 6, i}, scratch);
    EXPECT_EQ(*sample_or_reject(row, drafted, same, scratch), drafted);
  }
}

TEST(Rejection, GreedyIsTheSampler) {
  SamplingParams params;
  params.temperature = 0;
  SampleScratch scratch;
  const SampleRow row = {.logits = k_target, .params = params, .seed = 1, .position = 1};
  EXPECT_EQ(*sample_or_reject(row, 3, {{{3, 1.0f}}}, scratch), 0);
  EXPECT_EQ(*sample_or_reject(row, 0, {{{0, 1.0f}}}, scratch), 0);
}

TEST(Rejection, AnImpossibleDraftIsRejected) {
  SamplingParams params;
  params.top_k = 2;
  SampleScratch scratch;
  for (uint64_t i = 0; i < 1000; ++i) {
    const SampleRow row = {.logits = k_target, .params = params, .seed = 5, .position = i};
    EXPECT_NE(*sample_or_reject(row, 5, {{{5, 1.0f}}}, scratch), 5);
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
    wrong.entries[0].probability += 0.02f;
    wrong.entries[1].probability -= 0.02f;
    return right(row, drafted, wrong);
  };
  EXPECT_GT(play({}, claimed, k_draws / 10).chi_square, k_critical);
}

TEST(Rejection, NoiseThatIsSharedWithTheDraftIsNoticed) {
  // As if acceptance looked at the bits with which the draft drew.
  const auto shared = [](const SampleRow& row, int32_t drafted, const DraftDistribution& from) {
    const double u =
        (noise_bits(99, row.position, static_cast<uint32_t>(drafted) / 4)[drafted % 4] + 0.5) *
        0x1p-32;
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
