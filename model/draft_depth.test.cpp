#include "model/draft_depth.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/philox.hpp"

namespace outrider::model {
namespace {

using std::chrono::microseconds;

/// A step takes 10 ms and `row_us` a row; 1000 tokens of context 1 ms a sequence and as much for
/// each row more.
StepCosts costs(int row_us) {
  StepCosts out{.rows = {1, 2, 8}, .contexts = {0, 1000}};
  for (const int context_us : {0, 1000}) {
    for (const int rows : {1, 2, 8}) {
      out.times.push_back(microseconds(10'000 + rows * (row_us + context_us)));
    }
  }
  return out;
}

using Survivals = std::vector<std::vector<float>>;

std::vector<uint32_t> chosen(const Survivals& survivals, const StepCosts& costs,
                             uint32_t rows_max = 1000, double gain_min = 1.0) {
  std::vector<DraftCandidate> candidates;
  for (const auto& survival : survivals) candidates.push_back({0, survival});
  DepthScratch scratch;
  std::vector<uint32_t> depths;
  choose_depths(candidates, {}, costs, rows_max, gain_min, scratch, depths);
  return depths;
}

TEST(DraftDepth, CheapRowsAreTakenAsFarAsTheyPay) {
  EXPECT_EQ(chosen({{0.9f, 0.8f, 0.7f}}, costs(100)), (std::vector<uint32_t>{3}));
  // A second row makes a step of 10.1 ms one of 10.2: one in a hundred must come true.
  EXPECT_EQ(chosen({{0.9f, 0.015f, 0.014f}}, costs(100)), (std::vector<uint32_t>{1}));
}

TEST(DraftDepth, NothingIsVerifiedWhereRowsCostAsMuchAsSteps) {
  EXPECT_EQ(chosen({{0.9f, 0.8f}}, costs(1'000'000)), (std::vector<uint32_t>{0}));
}

TEST(DraftDepth, AnUncertainGainIsNone) {
  EXPECT_EQ(chosen({{0.03f}}, costs(100)), (std::vector<uint32_t>{1}));
  EXPECT_EQ(chosen({{0.03f}}, costs(100), 1000, 1.03), (std::vector<uint32_t>{0}));
}

TEST(DraftDepth, SlotsCompeteForTheRowsThatThereAre) {
  EXPECT_EQ(chosen({{0.5f, 0.4f}, {0.9f, 0.8f}, {}}, costs(1), 3),
            (std::vector<uint32_t>{1, 2, 0}));
}

TEST(DraftDepth, PlainDecodingIsBestUnderLoad) {
  const Survivals busy(64, {0.5f, 0.25f});
  const auto depths = chosen(busy, costs(2'000));
  EXPECT_EQ(std::accumulate(depths.begin(), depths.end(), 0u), 0u);
  EXPECT_EQ(chosen({{0.5f, 0.25f}}, costs(2'000)), (std::vector<uint32_t>{2}));
}

/// One sequence that is drafted well among others that are not: each row more costs a tenth of a
/// step, whoever it is for.
TEST(DraftDepth, OthersDoNotPayForOne) {
  const std::vector<float> certain(12, 1.0f);
  const StepCosts table = costs(1'000);
  EXPECT_EQ(chosen({certain}, table), (std::vector<uint32_t>{12}));
  const uint32_t beside_one = chosen({certain, {}}, table)[0];
  EXPECT_GT(beside_one, 4u);
  EXPECT_LT(beside_one, 12u);
  Survivals many(16);
  many[0] = certain;
  EXPECT_LE(chosen(many, table)[0], 1u);
}

/// What others lose is small, and so is the number of those who have to gain: one of many gains as
/// much as it would beside nobody, whatever gain is asked for.
TEST(DraftDepth, OneOfManyNeedNotGainForAll) {
  Survivals many(40);
  many[0].assign(16, 1.0f);
  StepCosts free{.rows = {1, 100}, .contexts = {0}};
  free.times.assign(2, microseconds(10'000));
  EXPECT_EQ(chosen(many, free, 1000, 1.08)[0], 16u);
  StepCosts cheap = free;  // 0.1 % of a step for each row
  cheap.times[1] += microseconds(1'000);
  EXPECT_GT(chosen(many, cheap, 1000, 1.08)[0], 8u);
  // Where none has more hints than one, all must gain what is asked for.
  EXPECT_EQ(chosen(Survivals(40, {0.07f}), free, 1000, 1.08)[0], 0u);
  EXPECT_EQ(chosen(Survivals(40, {0.09f}), free, 1000, 1.08)[39], 1u);
}

/// A long step is not much longer with a hint more; but none is cheaper than a prompt's row, and
/// who waits for a prompt pays as well.
TEST(DraftDepth, BesidePromptsHintsCostAPartOfALongStep) {
  const StepCosts dear = costs(8'000);
  const StepCosts free = costs(1);
  const std::vector<float> doubtful = {0.4f, 0.16f, 0.06f, 0.03f};
  const std::vector<DraftCandidate> candidates(4, {0, doubtful});
  const auto sum = [&](const StepBeside& beside, const StepCosts& table) {
    DepthScratch scratch;
    std::vector<uint32_t> depths;
    choose_depths(candidates, beside, table, 1000, 1.08, scratch, depths);
    return std::accumulate(depths.begin(), depths.end(), 0u);
  };
  EXPECT_EQ(sum({}, dear), 0u);
  EXPECT_GE(sum({.sequences = 1, .ns = 1e9, .row_ns = 8e6}, dear), 4u);
  EXPECT_EQ(sum({}, free), 16u);
  EXPECT_LT(sum({.sequences = 1, .ns = 1e9, .row_ns = 8e6}, free), 16u);
  EXPECT_EQ(sum({.sequences = 1, .ns = 40e6, .row_ns = 8e6}, free), 0u);
  EXPECT_LT(sum({.sequences = 40, .ns = 1e9, .row_ns = 8e6}, dear),
            sum({.sequences = 1, .ns = 1e9, .row_ns = 8e6}, dear));
}

TEST(DraftDepth, HintsCannotPayWhereNotEvenCertainOnesDo) {
  DepthScratch scratch;
  const auto pays = [&](const Survivals& survivals, int row_us, uint32_t rows_max = 1000) {
    std::vector<DraftCandidate> candidates;
    for (const auto& survival : survivals) candidates.push_back({0, survival});
    return could_pay(candidates, {}, costs(row_us), rows_max, 1.08, scratch);
  };
  const std::vector<float> doubtful = {0.01f, 0.001f};
  EXPECT_TRUE(pays({doubtful}, 100));
  EXPECT_FALSE(pays({doubtful}, 100, 0)) << "there is no room";
  EXPECT_FALSE(pays({}, 100));
  // What the weights take is nothing beside so many rows.
  EXPECT_FALSE(pays(Survivals(1000, doubtful), 3'000));
  EXPECT_TRUE(pays({doubtful}, 3'000));
  // One that gains beside many that do not.
  Survivals many(64);
  many[0] = doubtful;
  EXPECT_TRUE(pays(many, 10));
  EXPECT_FALSE(pays(many, 3'000));
}

/// It is choose_depths that decides.
TEST(DraftDepth, HintsCouldPayWhereCertainOnesWouldBeVerified) {
  Random random(0xc0);
  DepthScratch scratch;
  int paid = 0;
  for (int round = 0; round < 1000; ++round) {
    const StepCosts table = costs(1 << random.below(14));
    Survivals certain(1 + random.below(40));
    for (auto& survival : certain) survival.assign(random.below(8) == 0 ? random.below(17) : 0, 1);
    std::vector<DraftCandidate> candidates;
    for (const auto& survival : certain) candidates.push_back({0, survival});
    const auto depths = chosen(certain, table, 60, 1.08);
    const bool pays = std::ranges::any_of(depths, [](uint32_t depth) { return depth > 0; });
    ASSERT_EQ(could_pay(candidates, {}, table, 60, 1.08, scratch), pays) << round;
    paid += pays ? 1 : 0;
  }
  EXPECT_GT(paid, 100);
  EXPECT_LT(paid, 900);
}

TEST(DraftDepth, NoOtherDepthsPromiseMore) {
  const uint64_t seed = 0xd9;
  Random random(seed);
  for (int round = 0; round < 2000; ++round) {
    const StepCosts table = costs(1 << random.below(14));
    Survivals survivals(1 + random.below(3));
    std::vector<DraftCandidate> candidates;
    for (auto& survival : survivals) {
      float alive = 1;
      for (uint32_t n = random.below(4); n > 0; --n)
        survival.push_back(alive *= 0.2f + 0.8f * random.uniform());
      candidates.push_back({random.below(2000), survival});
    }
    const auto rate = [&](const std::vector<uint32_t>& depths) {
      double product = 1;
      double ns = 0;
      double rows = 0;
      for (size_t i = 0; i < depths.size(); ++i) {
        double tokens = 1;
        for (uint32_t d = 0; d < depths[i]; ++d) tokens += double{survivals[i][d]};
        product *= tokens;
        ns += table.context_ns({1 + depths[i], candidates[i].context});
        rows += 1 + depths[i];
      }
      const double sequences = static_cast<double>(depths.size());
      return std::pow(product, 1 / sequences) / (ns + table.rows_ns(rows));
    };
    DepthScratch scratch;
    std::vector<uint32_t> depths;
    choose_depths(candidates, {}, table, 1000, 1.0, scratch, depths);
    // Every other choice: with equal contexts none is better; else the greedy one is within a
    // tenth.
    std::vector<uint32_t> other(survivals.size(), 0);
    double best = 0;
    for (;;) {
      best = std::max(best, rate(other));
      size_t at = 0;
      while (at < other.size() && other[at] == survivals[at].size()) other[at++] = 0;
      if (at == other.size()) break;
      ++other[at];
    }
    EXPECT_GE(rate(depths), 0.9 * best) << "round " << round << " seed " << seed;
    for (DraftCandidate& candidate : candidates) candidate.context = 500;
    choose_depths(candidates, {}, table, 1000, 1.0, scratch, depths);
    const double chosen_rate = rate(depths);
    std::fill(other.begin(), other.end(), 0);
    for (;;) {
      EXPECT_LE(rate(other), chosen_rate * (1 + 1e-9)) << "round " << round << " seed " << seed;
      size_t at = 0;
      while (at < other.size() && other[at] == survivals[at].size()) other[at++] = 0;
      if (at == other.size()) break;
      ++other[at];
    }
  }
}

}  // namespace
}  // namespace outrider::model
