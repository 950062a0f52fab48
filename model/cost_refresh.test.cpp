#include "model/cost_refresh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.hpp"

namespace outrider::model {
namespace {

using std::chrono::milliseconds;

StepCosts measured() {
  using std::chrono::microseconds;
  StepCosts costs;
  costs.rows = {1, 2, 4, 8};
  costs.contexts = {0, 1024};
  for (const int us : {1000, 1200, 1600, 2400, 2000, 2200, 2600, 3400}) {
    costs.times.push_back(microseconds(us));
  }
  return costs;
}

/// `count` steps of one sequence, which took `factor` times what was measured.
void run(CostRefresh& refresh, uint32_t rows, double factor, int count) {
  const StepShare share{rows, 512};
  const auto expected = static_cast<double>(measured().step(std::span(&share, 1)).count());
  for (int i = 0; i < count; ++i) {
    refresh.observe(std::span(&share, 1), Duration(static_cast<int64_t>(expected * factor)));
  }
}

double factor(const CostRefresh& refresh, size_t at) {
  return static_cast<double>(refresh.costs().times[at].count()) /
         static_cast<double>(measured().times[at].count());
}

TEST(CostRefresh, StepsAsMeasuredChangeNothing) {
  CostRefresh refresh(measured());
  run(refresh, 1, 1, 100);
  run(refresh, 8, 1, 100);
  EXPECT_EQ(refresh.costs().times, measured().times);
}

TEST(CostRefresh, WhatCostsMoreThanMeasuredIsLearntForItsRows) {
  CostRefresh refresh(measured());
  for (int i = 0; i < 32; ++i) {
    run(refresh, 1, 1, 1);
    run(refresh, 8, 1.5, 1);
  }
  for (const size_t at : {0, 4}) EXPECT_NEAR(factor(refresh, at), 1, 0.01);
  for (const size_t at : {3, 7}) EXPECT_NEAR(factor(refresh, at), 1.5, 0.01);
}

TEST(CostRefresh, RowsThatNobodyRanFollowTheMachine) {
  CostRefresh refresh(measured());
  run(refresh, 1, 2, 64);
  for (size_t at = 0; at < 8; ++at) EXPECT_NEAR(factor(refresh, at), 2, 0.01) << at;
}

TEST(CostRefresh, RowsBetweenThoseThatRunAreBetweenThem) {
  CostRefresh refresh(measured());
  for (int i = 0; i < 32; ++i) {
    run(refresh, 2, 1, 1);
    run(refresh, 8, 2.5, 1);
  }
  EXPECT_NEAR(factor(refresh, 0), 1, 0.01);
  EXPECT_NEAR(factor(refresh, 2), 1.5, 0.01) << "four rows are a third of the way";
}

TEST(CostRefresh, WhatIsSlowAtTimesIsTheMachineNotTheRows) {
  CostRefresh refresh(measured());
  run(refresh, 8, 1, 32);
  run(refresh, 1, 1, 32);
  run(refresh, 1, 2, 40);
  run(refresh, 8, 1, 32);
  for (size_t at = 1; at < 8; ++at) {
    EXPECT_NEAR(factor(refresh, at) / factor(refresh, 0), 1, 0.01) << at;
  }
  for (int i = 0; i < 40; ++i) {
    run(refresh, 1, 1.5, 1);
    run(refresh, 8, 3, 1);
  }
  EXPECT_NEAR(factor(refresh, 3) / factor(refresh, 0), 2, 0.01) << "both became slow, not alike";
}

TEST(CostRefresh, KnowsWhatRanOfLate) {
  CostRefresh refresh(measured());
  EXPECT_FALSE(refresh.knows(1));
  run(refresh, 8, 1, 32);
  EXPECT_TRUE(refresh.knows(8));
  EXPECT_FALSE(refresh.knows(1)) << "that one is as measured tells nothing of another";
  run(refresh, 1, 1, 8);
  EXPECT_TRUE(refresh.knows(1));
  run(refresh, 8, 1, 256);
  EXPECT_FALSE(refresh.knows(1));
}

TEST(CostRefresh, FewDisturbedStepsMakeNoRowsDear) {
  CostRefresh refresh(measured());
  Random random(0x51);
  for (int i = 0; i < 256; ++i) {
    run(refresh, 2, i % 5 == 0 ? 1 + 5 * random.uniform() : 1, 1);
    run(refresh, 8, 1, 1);
  }
  EXPECT_NEAR(factor(refresh, 3) / factor(refresh, 1), 1, 0.01);
}

/// Slower bit by bit and fast again at once, for ever.
TEST(CostRefresh, CostsStayNearWhatStepsTake) {
  for (const double slower : {1.0, 1.5}) {
    CostRefresh refresh(measured());
    for (int i = 0; i < 4096; ++i) {
      const double saw = std::pow(1.035, i % 20);
      run(refresh, i % 2 == 0 ? 2 : 8, saw * (i % 3 == 0 ? slower : 1), 1);
    }
    EXPECT_GT(factor(refresh, 1), 1) << slower;
    EXPECT_LT(factor(refresh, 1), 3) << slower;
    EXPECT_NEAR(factor(refresh, 3) / factor(refresh, 1), 1, 0.05) << slower;
  }
}

TEST(CostRefresh, StepsThatRepeatTheLastOnesRowsTellOnlyThePace) {
  CostRefresh refresh(measured());
  for (int i = 0; i < 32; ++i) {
    run(refresh, 1, 1, 1);
    run(refresh, 8, 1, 1);
  }
  run(refresh, 8, 1, 1);
  for (int i = 0; i < 60; ++i) run(refresh, 8, std::pow(1.02, i), 1);
  EXPECT_NEAR(factor(refresh, 3) / factor(refresh, 0), 1, 0.01);
}

/// The machine became faster while nobody decoded: what ran before is dear, and says nothing.
TEST(CostRefresh, WhatWasLongAgoRaisesNothingThatRan) {
  StepCosts table{.contexts = {0}};
  for (uint32_t rows = 1; rows <= 64; ++rows) {
    table.rows.push_back(rows);
    table.times.push_back(milliseconds(20 + rows));
  }
  CostRefresh refresh(table);
  const auto observe = [&](uint32_t rows, double slower, int count) {
    const StepShare share{rows, 0};
    const auto expected = static_cast<double>(table.times[rows - 1].count());
    for (int i = 0; i < count; ++i) {
      refresh.observe(std::span(&share, 1), Duration(static_cast<int64_t>(slower * expected)));
    }
  };
  for (int i = 0; i < 64; ++i) {
    observe(4, 20, 1);
    observe(8, 20, 1);
  }
  for (int i = 0; i < 64; ++i) {
    observe(32, 1, 4);
    observe(48, 1, 4);
  }
  const StepCosts& costs = refresh.costs();
  EXPECT_NEAR(costs.rows_ns(48) / costs.rows_ns(32), 68.0 / 52, 0.01);
  EXPECT_LT(costs.rows_ns(8), costs.rows_ns(32));
}

TEST(CostRefresh, WhatWasLongAgoIsKnownAndNotHopedFor) {
  CostRefresh refresh(measured());
  run(refresh, 8, 3, 32);
  run(refresh, 1, 1, 32);
  EXPECT_NEAR(factor(refresh, 3), 3, 0.01);
  EXPECT_EQ(refresh.hoped().times[3], refresh.costs().times[3]);
  run(refresh, 1, 1, 1024);
  EXPECT_NEAR(factor(refresh, 3), 3, 0.01);
  EXPECT_EQ(refresh.hoped().times, measured().times);
  run(refresh, 8, 2, 16);
  EXPECT_NEAR(factor(refresh, 3), 2, 0.01);
  EXPECT_EQ(refresh.hoped().times[3], refresh.costs().times[3]);
}

TEST(CostRefresh, NoRowIsHopedToCostAThirdOfAStep) {
  StepCosts dear = measured();
  for (const size_t at : {3, 7}) dear.times[at] += milliseconds(10);
  const CostRefresh refresh(dear);
  EXPECT_EQ(refresh.costs().times, dear.times);
  EXPECT_EQ(refresh.hoped().times[2], dear.times[2]);
  EXPECT_EQ(refresh.hoped().times[3], std::chrono::microseconds(1600 + 4 * 300));
}

TEST(CostRefresh, WhatFewStepsTellIsToldByThoseBesideThem) {
  StepCosts table{.contexts = {0}};
  for (uint32_t rows = 1; rows <= 64; ++rows) {
    table.rows.push_back(rows);
    table.times.push_back(milliseconds(10 + rows));
  }
  CostRefresh refresh(table);
  const auto observe = [&](uint32_t rows, double slower) {
    const StepShare share{rows, 0};
    const auto expected = static_cast<double>(table.times[rows - 1].count());
    refresh.observe(std::span(&share, 1), Duration(static_cast<int64_t>(slower * expected)));
  };
  const auto slower_at = [&](uint32_t rows) {
    return refresh.costs().rows_ns(rows) / static_cast<double>(table.times[rows - 1].count());
  };
  for (uint32_t rows = 74; rows <= 89; ++rows) observe(rows / 2, 2);
  for (const uint32_t rows : {36u, 40u, 48u}) EXPECT_NEAR(slower_at(rows), 2, 0.01) << rows;
  for (int i = 0; i < 8; ++i) observe(44, 3);
  EXPECT_NEAR(slower_at(44), 3, 0.01);
  EXPECT_NEAR(slower_at(41), 2, 0.01) << "it knows two others";
}

TEST(CostRefresh, WhatIsGuessedOfFewerRowsRaisesNothingThatRan) {
  StepCosts table{.contexts = {0}};
  const int times[] = {40, 45, 50, 60, 110, 120, 130, 140};
  for (uint32_t rows = 1; rows <= std::size(times); ++rows) {
    table.rows.push_back(rows);
    table.times.push_back(milliseconds(times[rows - 1]));
  }
  CostRefresh refresh(table);
  for (int i = 0; i < 8; ++i) {
    const StepShare four{4, 0}, eight{8, 0};
    refresh.observe(std::span(&four, 1), milliseconds(90));
    refresh.observe(std::span(&eight, 1), milliseconds(154));
  }
  // Half as long again as measured, like four rows, five would take 165 ms.
  EXPECT_NEAR(refresh.costs().rows_ns(4), 90e6, 1e5);
  EXPECT_NEAR(refresh.costs().rows_ns(8), 154e6, 1e5);
  EXPECT_LT(refresh.costs().rows_ns(5), 154e6);
  EXPECT_LT(refresh.costs().rows_ns(7), 154e6);
}

TEST(CostRefresh, NoStepTakesLessThanNothing) {
  StepCosts table{.contexts = {0}};
  for (uint32_t rows = 1; rows <= 32; ++rows) {
    table.rows.push_back(rows);
    table.times.push_back(milliseconds(20 + 8 * rows));
  }
  CostRefresh refresh(table);
  const auto observe = [&](uint32_t rows, double slower) {
    const StepShare share{rows, 0};
    const auto expected = static_cast<double>(table.times[rows - 1].count());
    refresh.observe(std::span(&share, 1), Duration(static_cast<int64_t>(slower * expected)));
  };
  for (int i = 0; i < 3; ++i) {
    for (const uint32_t rows : {15u, 16u, 17u}) observe(rows, 20);
  }
  for (int i = 0; i < 15; ++i) observe(24, 1);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    EXPECT_GE(refresh.costs().times[i], table.times[i] / 64) << table.rows[i];
    EXPECT_GE(refresh.hoped().times[i], table.times[i] / 64) << table.rows[i];
  }
}

TEST(CostRefresh, RowsAreKnownByWhatRunsOnBothSides) {
  StepCosts table{.contexts = {0}};
  for (uint32_t rows = 1; rows <= 64; ++rows) {
    table.rows.push_back(rows);
    table.times.push_back(milliseconds(10));
  }
  CostRefresh refresh(table);
  const auto observe = [&](uint32_t rows) {
    const StepShare share{rows, 0};
    for (int i = 0; i < 5; ++i) refresh.observe(std::span(&share, 1), milliseconds(10));
  };
  observe(42);
  EXPECT_FALSE(refresh.knows(40)) << "40 streams with two hints";
  EXPECT_TRUE(refresh.knows_about(40));
  EXPECT_FALSE(refresh.knows_about(52));
  observe(38);
  EXPECT_TRUE(refresh.knows(40));
  EXPECT_TRUE(refresh.knows(42));
  EXPECT_FALSE(refresh.knows(44));
  EXPECT_FALSE(refresh.knows(30));
}

TEST(CostRefresh, MediansThatPassEachOtherMakeNoRowsFree) {
  CostRefresh refresh(measured());
  for (int i = 0; i < 32; ++i) {
    run(refresh, 4, 6, 1);  // As many sequences end, disturbed;
    run(refresh, 8, 4, 1);  // 9.6 ms each.
  }
  const StepCosts& costs = refresh.costs();
  EXPECT_EQ(costs.times[3], std::chrono::microseconds(9600));
  EXPECT_EQ(costs.times[3] - costs.times[2], std::chrono::microseconds(800));
  const double row_ns = (costs.rows_ns(64) - costs.rows_ns(32)) / 32;
  EXPECT_NEAR(row_ns, 200'000, 1000) << "beyond the table, too: a quarter of 200 us, four times";
}

TEST(CostRefresh, WhatRunsAgainAndAgainStaysKnown) {
  CostRefresh refresh(measured());
  run(refresh, 8, 3, 1000);
  EXPECT_TRUE(refresh.knows(8));
  EXPECT_EQ(refresh.hoped().times[3], refresh.costs().times[3]);
}

TEST(CostRefresh, WhereFewerRowsSeemDearerTheLastOnesThatRanAreRight) {
  CostRefresh refresh(measured());
  run(refresh, 8, 1, 32);
  run(refresh, 4, 20, 32);  // In a slow moment, of which it is not known that it is one.
  EXPECT_NEAR(factor(refresh, 2), 20, 0.1);
  EXPECT_GT(factor(refresh, 3), 12);
  for (const int steps : {16, 1000}) {
    run(refresh, 8, 1, steps);
    EXPECT_NEAR(factor(refresh, 3), 1, 0.01);
    EXPECT_LT(refresh.costs().times[2], refresh.costs().times[3]);
    EXPECT_LT(refresh.hoped().times[2], refresh.hoped().times[3]);
  }
}

TEST(CostRefresh, RowsBetweenTwoThatContradictWhatWasMeasuredAreBetweenThem) {
  CostRefresh refresh(measured());
  for (int i = 0; i < 32; ++i) {
    run(refresh, 1, 1, 1);
    run(refresh, 8, 1.01 / 2.4, 1);  // 1.01 ms: seven rows for nothing
  }
  for (const StepCosts* costs : {&refresh.costs(), &refresh.hoped()}) {
    EXPECT_TRUE(std::ranges::is_sorted(costs->times.begin(), costs->times.begin() + 4));
    EXPECT_LT(costs->times[3], std::chrono::microseconds(1400));
    const auto added = [&](size_t at) { return to_ms(costs->times[at] - costs->times[0]); };
    EXPECT_NEAR(added(1) / added(3), 0.2 / 1.4, 0.001) << "as they were measured";
    EXPECT_NEAR(added(2) / added(3), 0.6 / 1.4, 0.001);
  }
}

TEST(CostRefresh, WithoutMeasurementsThereAreNoCosts) {
  CostRefresh refresh;
  const StepShare share{1, 0};
  refresh.observe(std::span(&share, 1), milliseconds(1));
  EXPECT_TRUE(refresh.costs().rows.empty());
}

}  // namespace
}  // namespace outrider::model
