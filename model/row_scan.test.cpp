#include "model/row_scan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fmath.hpp"
#include "base/philox.hpp"
#include "model/noise.hpp"

namespace outrider::model {
namespace {

constexpr float k_forbidden = -std::numeric_limits<float>::infinity();

/// Rows of any length with ties and forbidden tokens.
std::vector<float> random_row(Random& random) {
  std::vector<float> row(1 + random.below(random.chance(0.5f) ? 40 : 400));
  const float step = random.chance(0.5f) ? 1.0f : 0.001f;
  for (float& v : row) v = std::floor(random.uniform() * 20.0f / step) * step - 12.0f;
  if (random.chance(0.3f)) {
    for (float& v : row) v = random.chance(0.2f) ? k_forbidden : v;
  }
  row[random.below(static_cast<uint32_t>(row.size()))] = 5.0f;
  return row;
}

class RandomRows : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomRows, EqualThePlainLoops) {
  Random random(GetParam());
  std::vector<float> peaks;
  std::vector<SampleScratch::Candidate> found;
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = random_row(random);
    const RowScan row(logits, peaks);
    const auto size = static_cast<int32_t>(logits.size());
    EXPECT_EQ(row.all_finite(), std::count(logits.begin(), logits.end(), k_forbidden) == 0);
    const auto highest = std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(row.highest(), *highest);
    EXPECT_EQ(row.argmax(), highest - logits.begin());

    const auto id = static_cast<int32_t>(random.below(static_cast<uint32_t>(size)));
    const float own = logits[static_cast<size_t>(id)];
    uint32_t ahead = 0;
    for (int32_t i = 0; i < size; ++i) {
      const float other = logits[static_cast<size_t>(i)];
      ahead += other > own || (other == own && i < id) ? 1u : 0u;
    }
    EXPECT_EQ(row.count_ahead(id), ahead);

    const size_t count = 1 + random.below(12);
    const float reached = row.reached_by(count);
    EXPECT_TRUE(reached == k_forbidden || std::count_if(logits.begin(), logits.end(), [&](float v) {
                                            return v >= reached;
                                          }) >= static_cast<ptrdiff_t>(count));

    const ScoreScale scale = {*highest, 0.5f + random.uniform()};
    const float least = random.chance(0.2f) ? k_forbidden : -20.0f * random.uniform();
    row.collect(scale, least, found);
    size_t next = 0;
    double lanes[16] = {};
    GumbelWinner winner;
    for (int32_t i = 0; i < size; ++i) {
      const float score = scale.score(logits[static_cast<size_t>(i)]);
      lanes[i % 16] += double{exp_f32(score)};
      if (score == k_forbidden) continue;
      const float value = score + gumbel(noise_bits(3, 9, static_cast<uint32_t>(i) / 4)[i % 4]);
      if (winner.id < 0 || value > winner.value) winner = {value, i};
      if (score < least) continue;
      ASSERT_LT(next, found.size());
      EXPECT_EQ(found[next].id, i);
      EXPECT_EQ(found[next++].score, score);
    }
    EXPECT_EQ(next, found.size());
    double sum = lanes[0];
    for (int l = 1; l < 16; ++l) sum += lanes[l];
    EXPECT_EQ(row.sum_of_exponentials(scale), sum);
    EXPECT_EQ(row.gumbel_argmax(scale, 3, 9), winner.id);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRows, ::testing::Values(1, 2, 3));

TEST(RowScan, SeesEachKindOfValueThatIsNotFinite) {
  std::vector<float> peaks;
  for (const float odd : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (const size_t at : {0u, 15u, 64u, 99u}) {
      std::vector<float> logits(100, 1.0f);
      EXPECT_TRUE(RowScan(logits, peaks).all_finite());
      logits[at] = odd;
      EXPECT_FALSE(RowScan(logits, peaks).all_finite()) << odd << " at " << at;
    }
  }
}

}  // namespace
}  // namespace outrider::model
