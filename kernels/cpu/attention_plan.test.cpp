#include "kernels/cpu/attention_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/philox.hpp"

namespace outrider::kernels {
namespace {

constexpr uint64_t k_seed = 0x91A5;

size_t cost_of(const AttentionPlan& plan, Range run) {
  size_t cost = 0;
  for (size_t i = run.begin; i < run.end; ++i) {
    const AttentionItem& item = plan.items()[i];
    cost += item.chunks * (item.rows * item.heads + 6);
  }
  return cost;
}

/// Which chunks each (row, head) has been given, in order.
using Given = std::map<std::pair<size_t, size_t>, std::vector<size_t>>;

Given given_chunks(const AttentionPlan& plan) {
  Given given;
  for (const AttentionItem& item : plan.items()) {
    for (size_t row = 0; row < item.rows; ++row) {
      for (size_t head = 0; head < item.heads; ++head) {
        auto& chunks = given[{item.first_row + row, item.first_head + head}];
        for (size_t c = 0; c < item.chunks; ++c) chunks.push_back(item.first_chunk + c);
      }
    }
  }
  return given;
}

TEST(AttentionPlanTest, EveryRowAndHeadGetsEachOfItsChunksOnceInOrder) {
  Random random(k_seed);
  AttentionPlan plan;
  for (int round = 0; round < 60; ++round) {
    const KvGeometry geometry = {.layers = 1, .kv_heads = 1 + random.below(3), .head_dim = 64};
    const size_t heads = geometry.kv_heads * (1 + random.below(40));
    const uint32_t threads = 1 + random.below(9);
    std::vector<Segment> segments;
    uint32_t rows = 0;
    for (uint32_t i = 0; i <= random.below(6); ++i) {
      const uint32_t own = random.below(3) == 0 ? 1 + random.below(300) : 1;
      segments.push_back({nullptr, rows, own, random.below(5000)});
      rows += own;
    }
    plan.build(geometry, segments, heads, threads);

    const Given given = given_chunks(plan);
    ASSERT_EQ(given.size(), rows * heads) << "seed " << k_seed << " round " << round;
    for (const Segment& segment : segments) {
      for (uint32_t row = 0; row < segment.rows; ++row) {
        const size_t needed = (segment.first_position + row) / k_chunk_positions + 1;
        for (size_t head = 0; head < heads; ++head) {
          const auto& chunks = given.at({segment.first_row + row, head});
          ASSERT_GE(chunks.size(), needed) << "round " << round;
          for (size_t c = 0; c < chunks.size(); ++c) ASSERT_EQ(chunks[c], c) << "round " << round;
        }
      }
    }
  }
}

TEST(AttentionPlanTest, RunsCoverTheItemsAndAreAboutEquallyCostly) {
  Random random(k_seed);
  AttentionPlan plan;
  for (int round = 0; round < 300; ++round) {
    const uint32_t kv_heads = 1 + random.below(8);
    const KvGeometry geometry = {.layers = 1, .kv_heads = kv_heads, .head_dim = 64};
    const uint32_t threads = 2 + random.below(31);
    const uint32_t depth = random.below(8000);
    std::vector<Segment> segments;
    for (uint32_t i = 0; i <= random.below(6); ++i) {
      segments.push_back({nullptr, i, 1, depth / 2 + random.below(depth / 2 + 1)});
    }
    plan.build(geometry, segments, 3 * kv_heads, threads);
    size_t next = 0;
    size_t total = 0;
    size_t largest = 0;
    for (const Range run : plan.runs()) {
      ASSERT_EQ(run.begin, next);
      ASSERT_GT(run.end, run.begin);
      next = run.end;
      total += cost_of(plan, run);
      largest = std::max(largest, cost_of(plan, run));
    }
    ASSERT_EQ(next, plan.items().size());
    // Chunks are not cut, and small ends stay with their unit.
    const double even = static_cast<double>(total) / (threads * 4);
    ASSERT_LE(static_cast<double>(largest), even * 1.25 + 9)
        << "seed " << k_seed << " round " << round << " threads " << threads;
  }
}

TEST(AttentionPlanTest, SplitUnitsHoldThePartialResultsOfTheirItems) {
  AttentionPlan plan;
  const KvGeometry geometry = {.layers = 1, .kv_heads = 2, .head_dim = 64};
  const Segment segment = {nullptr, 0, 1, 4095};
  plan.build(geometry, {&segment, 1}, 6, 4);
  ASSERT_EQ(plan.split_units().size(), 2u);
  for (const AttentionItem& unit : plan.split_units()) {
    EXPECT_EQ(unit.chunks, 16u);
    size_t next = 0;
    for (const AttentionItem& item : plan.items()) {
      if (item.kv_head != unit.kv_head) continue;
      EXPECT_EQ(item.first_chunk, next);
      EXPECT_EQ(item.partials, unit.partials + next * 3 * partial_floats(64));
      next += item.chunks;
    }
    EXPECT_EQ(next, unit.chunks);
  }
}

TEST(AttentionPlanTest, OneThreadCutsNothing) {
  AttentionPlan plan;
  const KvGeometry geometry = {.layers = 1, .kv_heads = 2, .head_dim = 64};
  const Segment segment = {nullptr, 0, 1, 8000};
  plan.build(geometry, {&segment, 1}, 6, 1);
  EXPECT_EQ(plan.runs().size(), 1u);
  EXPECT_EQ(plan.items().size(), 2u);
  EXPECT_TRUE(plan.split_units().empty());
}

}  // namespace
}  // namespace outrider::kernels
