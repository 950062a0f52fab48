#include "tests/golden/golden_stats.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outrider::golden {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

/// 200 predictions, NLL 2 each; the reference prefers token 7 clearly, and barely at position 50.
Window window() {
  Window result;
  result.name = "prose";
  result.ids.assign(201, 5);
  result.nll.assign(200, 2.0f);
  result.top1.assign(200, 7);
  result.gap.assign(200, 1.0f);
  result.gap[50] = 0.05f;
  result.probes.push_back({10, {7, 5, 9}, {-0.5f, -2.0f, -3.0f}});
  return result;
}

/// What an engine that equals the reference answers for `window()`.
std::vector<TokenLogprob> perfect() {
  const TokenLogprob answer{-2.0f, 2, {{7, -0.5f}, {5, -2.0f}, {9, -3.0f}}};
  return std::vector<TokenLogprob>(200, answer);
}

GreedyPath path() {
  return {"story", {1, 2}, {10, 11, 12}, {-0.1f, -0.2f, -0.3f}, {2.0f, 0.03f, 2.0f}};
}

std::vector<TokenOut> generated(const std::vector<int32_t>& ids) {
  std::vector<TokenOut> tokens;
  for (size_t i = 0; i < ids.size(); ++i) {
    tokens.push_back({ids[i], TokenLogprob{path().logprobs[i], 1, {}}});
  }
  return tokens;
}

std::vector<std::string> judge(const std::vector<TokenLogprob>& scored) {
  Report report;
  compare_window(window(), scored, report);
  return violations(report, Limits{});
}

std::vector<std::string> judge_path(const std::vector<int32_t>& ids) {
  Report report;
  compare_window(window(), perfect(), report);
  compare_path(path(), generated(ids), report);
  return violations(report, Limits{});
}

TEST(GoldenStats, AnEngineThatEqualsTheReferencePasses) {
  EXPECT_THAT(judge(perfect()), IsEmpty());
  EXPECT_THAT(judge_path({10, 11, 12}), IsEmpty());
}

TEST(GoldenStats, FiguresAreMeansOverPositions) {
  auto scored = perfect();
  scored[0].logprob = -4.0f;
  scored[10].top[1].second = -2.3f;
  Report report;
  compare_window(window(), scored, report);
  EXPECT_EQ(report.positions, 200u);
  EXPECT_DOUBLE_EQ(report.reference_mean_nll(), 2.0);
  EXPECT_DOUBLE_EQ(report.engine_mean_nll(), 402.0 / 200);
  EXPECT_DOUBLE_EQ(report.mean_nll_relative(), 0.005);
  EXPECT_DOUBLE_EQ(report.nll_difference_max, 2.0);
  EXPECT_NEAR(report.probe_difference_mean(), 0.1, 1e-6);
  EXPECT_NEAR(report.probe_difference_max, 0.3, 1e-6);
}

TEST(GoldenStats, MeanNllOutsideHalfAPercentFailsInBothDirections) {
  for (const float nll : {2.011f, 1.989f}) {
    auto scored = perfect();
    for (TokenLogprob& answer : scored) {
      answer.logprob = -nll;
    }
    EXPECT_THAT(judge(scored), ElementsAre(HasSubstr("mean NLL"))) << nll;
  }
}

TEST(GoldenStats, NotANumberFails) {
  auto scored = perfect();
  scored[3].logprob = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(judge(scored), ElementsAre(HasSubstr("mean NLL")));
  Report report;
  compare_window(window(), scored, report);
  EXPECT_TRUE(std::isnan(report.nll_difference_max));
}

TEST(GoldenStats, AnotherChoiceIsRightOnlyAtANearTie) {
  auto scored = perfect();
  std::swap(scored[50].top[0], scored[50].top[1]);
  EXPECT_THAT(judge(scored), IsEmpty());
  std::swap(scored[51].top[0], scored[51].top[1]);
  EXPECT_THAT(judge(scored), ElementsAre(HasSubstr("prose position 51")));
}

TEST(GoldenStats, FewerThanNinetyEightPercentAgreementFailsEvenAtNearTies) {
  Window tied = window();
  tied.gap.assign(200, 0.01f);
  auto scored = perfect();
  for (size_t i = 20; i < 24; ++i) {
    scored[i].top.front().first = 5;
  }
  Report four;
  compare_window(tied, scored, four);
  EXPECT_THAT(violations(four, Limits{}), IsEmpty());
  scored[24].top.front().first = 5;
  Report five;
  compare_window(tied, scored, five);
  EXPECT_THAT(violations(five, Limits{}), ElementsAre(HasSubstr("top-1 agreement")));
}

TEST(GoldenStats, WrongProbabilitiesOfTheTopTokensFail) {
  auto scored = perfect();
  for (auto& [id, logprob] : scored[10].top) {
    logprob += 0.2f;
  }
  EXPECT_THAT(judge(scored), ElementsAre(HasSubstr("top tokens")));
}

TEST(GoldenStats, ATokenMissingFromTheTopCountsByItsBound) {
  auto scored = perfect();
  scored[10].top = {{7, -0.5f}, {5, -2.0f}, {8, -2.9f}};
  Report report;
  compare_window(window(), scored, report);
  EXPECT_EQ(report.probe_difference_max, 0);
  scored[10].top.back().second = -3.5f;
  compare_window(window(), scored, report);
  EXPECT_NEAR(report.probe_difference_max, 0.5, 1e-6);
}

TEST(GoldenStats, MissingAnswersFail) {
  auto scored = perfect();
  scored.pop_back();
  EXPECT_THAT(judge(scored), Not(IsEmpty()));
  scored = perfect();
  scored[7].top.clear();
  EXPECT_THAT(judge(scored), Not(IsEmpty()));
  EXPECT_THAT(judge_path({10, 11}), ElementsAre(HasSubstr("2 of 3 tokens")));
  EXPECT_THAT(violations(Report{}, Limits{}), Not(IsEmpty()));
}

TEST(GoldenStats, APathMayBeLeftOnlyAtANearTie) {
  EXPECT_THAT(judge_path({10, 13, 99}), IsEmpty());
  EXPECT_THAT(judge_path({13, 11, 12}), ElementsAre(HasSubstr("greedy story position 0")));
  Report report;
  compare_path(path(), generated({10, 13, 99}), report);
  ASSERT_THAT(report.paths, SizeIs(1));
  EXPECT_EQ(report.paths[0].matched, 1u);
  EXPECT_THAT(summary(report), HasSubstr("story 1/3"));
}

}  // namespace
}  // namespace outrider::golden
