#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/sampler.hpp"

/// Draws with fixed seeds against exact probabilities, by chi-square. And the proof that the test
/// would notice a small bias.
namespace outrider::model {
namespace {

constexpr int k_seeds_drawn = 100'000;

const std::vector<float> k_logits = {2.0f, 1.0f, 0.5f, 0.0f, 1.5f, -1.0f, 0.75f, -0.5f};

/// Softmax of logits / temperature over the kept ids, in double.
std::vector<double> probabilities(double temperature, const std::vector<int>& kept) {
  std::vector<double> p(k_logits.size(), 0.0);
  double total = 0;
  for (const int i : kept) total += p[i] = std::exp(k_logits[i] / temperature);
  for (double& v : p) v /= total;
  return p;
}

/// Chi-square statistic; infinite when an impossible token was drawn.
double chi_square(const std::vector<int>& counts, const std::vector<double>& expected) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double e = expected[i] * k_seeds_drawn;
    if (e == 0) {
      if (counts[i] > 0) return INFINITY;
      continue;
    }
    sum += (counts[i] - e) * (counts[i] - e) / e;
  }
  return sum;
}

/// The value that 7 degrees of freedom or fewer exceed with probability 1e-5.
constexpr double k_critical_value = 35.3;

std::vector<int> draw(const SamplingParams& params, bool by_seed) {
  std::vector<int> counts(k_logits.size(), 0);
  SampleScratch scratch;
  for (uint64_t i = 0; i < k_seeds_drawn; ++i) {
    const SampleRow row = {.logits = k_logits,
                           .params = params,
                           .seed = by_seed ? i : 1234,
                           .position = by_seed ? 17 : i};
    ++counts[static_cast<size_t>(*sample(row, scratch))];
  }
  return counts;
}

void expect_fits(const SamplingParams& params, const std::vector<double>& expected) {
  for (const bool by_seed : {true, false}) {
    EXPECT_LT(chi_square(draw(params, by_seed), expected), k_critical_value) << by_seed;
  }
}

const std::vector<int> k_all = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(SamplerDistribution, TemperatureOne) {
  expect_fits({}, probabilities(1.0, k_all));
}

TEST(SamplerDistribution, LowAndHighTemperature) {
  SamplingParams params;
  params.temperature = 0.5f;
  expect_fits(params, probabilities(0.5, k_all));
  params.temperature = 1.75f;
  expect_fits(params, probabilities(1.75, k_all));
}

TEST(SamplerDistribution, TopK) {
  SamplingParams params;
  params.top_k = 3;
  expect_fits(params, probabilities(1.0, {0, 4, 1}));
}

TEST(SamplerDistribution, TopP) {
  // Sorted probabilities: 0.360 0.219 0.133 0.103 …: 0.6 needs three.
  SamplingParams params;
  params.top_p = 0.6f;
  expect_fits(params, probabilities(1.0, {0, 4, 1}));
}

TEST(SamplerDistribution, MinP) {
  SamplingParams params;
  params.min_p = 0.25f;  // exp(-1.25) = 0.287 stays, exp(-1.5) = 0.223 goes
  expect_fits(params, probabilities(1.0, {0, 4, 1, 6}));
}

TEST(SamplerDistribution, ABiasOfTwoPercentOnOneTokenIsNoticed) {
  std::vector<double> biased = probabilities(1.0, k_all);
  const double shift = 0.02 * biased[0];
  biased[0] -= shift;
  biased[1] += shift;
  EXPECT_GT(chi_square(draw({}, true), biased), k_critical_value);
  EXPECT_GT(chi_square(draw({}, false), biased), k_critical_value);
}

TEST(SamplerDistribution, NeighbouringPositionsAndSeedsAreIndependent) {
  // Pairs of draws over two tokens: all four combinations equally often.
  const std::vector<float> even = {0, 0};
  const SamplingParams params;
  SampleScratch scratch;
  for (const bool by_seed : {true, false}) {
    int pairs[4] = {};
    for (uint64_t i = 0; i < k_seeds_drawn; ++i) {
      const uint64_t first = 2 * i;
      const auto at = [&](uint64_t n) {
        return *sample({.logits = even,
                        .params = params,
                        .seed = by_seed ? n : 9,
                        .position = by_seed ? 3 : n},
                       scratch);
      };
      ++pairs[2 * at(first) + at(first + 1)];
    }
    double sum = 0;
    for (const int n : pairs)
      sum += (n - k_seeds_drawn / 4.0) * (n - k_seeds_drawn / 4.0) / (k_seeds_drawn / 4.0);
    EXPECT_LT(sum, 25.9) << "3 degrees of freedom, probability 1e-5";
  }
}

}  // namespace
}  // namespace outrider::model
