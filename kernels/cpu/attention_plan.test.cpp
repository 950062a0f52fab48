#include "kernels/cpu/attention_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/philox.hpp"

namespace outrider::kernels {
namespace {

constexpr uint64_t k_plan_seed = 0x91A5;

size_t queries_of(const AttentionPlan& plan, const AttentionItem& item) {
  size_t queries = 0;
  for (size_t u = 0; u < item.units; ++u) {
    const AttentionUnit& unit = plan.units()[item.first_unit + u];
    queries += unit.rows * unit.heads;
  }
  return queries;
}

size_t cost_of(const AttentionPlan& plan, Range run) {
  size_t cost = 0;
  for (size_t i = run.begin; i < run.end; ++i) {
    const AttentionItem& item = plan.items()[i];
    cost += item.chunks * (queries_of(plan, item) + 6);
  }
  return cost;
}

/// Sequences whose blocks begin like another's, for a random number of blocks of 16.
class Tables {
 public:
  explicit Tables(Random& random) : random_(random) {}

  const int32_t* add(uint32_t length, bool shares) {
    std::vector<int32_t> table((length + 15) / 16);
    size_t own = 0;
    if (shares && !tables_.empty()) {
      const auto& other = tables_[random_.below(static_cast<uint32_t>(tables_.size()))];
      const size_t most = std::min(table.size(), other.size());
      own = random_.below(static_cast<uint32_t>(most + 1));
      std::copy_n(other.begin(), own, table.begin());
    }
    for (; own < table.size(); ++own) table[own] = next_++;
    tables_.push_back(std::move(table));
    return tables_.back().data();
  }

 private:
  Random& random_;
  std::deque<std::vector<int32_t>> tables_;
  int32_t next_ = 0;
};

/// Which chunks each (row, head) has been given and from which first block, in order of chunks.
using Given = std::map<std::pair<size_t, size_t>, std::map<size_t, int32_t>>;

Given given_chunks(const AttentionPlan& plan) {
  Given given;
  for (const AttentionItem& item : plan.items()) {
    const int32_t* table = plan.units()[item.first_unit].block_table;
    for (size_t u = item.first_unit; u < item.first_unit + item.units; ++u) {
      const AttentionUnit& unit = plan.units()[u];
      for (size_t query = 0; query < unit.rows * unit.heads; ++query) {
        const size_t row = unit.first_row + query / unit.heads;
        auto& chunks = given[{row, unit.first_head + query % unit.heads}];
        for (size_t c = item.first_chunk; c < item.first_chunk + item.chunks; ++c) {
          EXPECT_TRUE(chunks.emplace(c, table[c * 16]).second) << "chunk " << c << " given twice";
        }
      }
    }
  }
  return given;
}

TEST(AttentionPlanTest, EveryRowAndHeadGetsEachOfItsChunksOnceFromItsOwnBlocks) {
  Random random(k_plan_seed);
  AttentionPlan plan;
  size_t shared_items = 0;
  for (int round = 0; round < 60; ++round) {
    KvGeometry geometry = {.layers = 1, .kv_heads = 1 + random.below(3), .head_dim = 64};
    if (round % 3 == 2) geometry.window = 1 + random.below(3000);
    const size_t heads = geometry.kv_heads * (1 + random.below(40));
    const uint32_t threads = 1 + random.below(9);
    Tables tables(random);
    std::vector<Segment> segments;
    uint32_t rows = 0;
    for (uint32_t i = 0; i <= random.below(10); ++i) {
      const uint32_t own = random.below(3) == 0 ? 1 + random.below(300) : 1;
      const uint32_t position = random.below(5000);
      segments.push_back({tables.add(position + own, round % 4 != 0), rows, own, position});
      rows += own;
    }
    plan.build(geometry, segments, heads, threads);

    const Given given = given_chunks(plan);
    ASSERT_EQ(given.size(), rows * heads) << "seed " << k_plan_seed << " round " << round;
    for (const Segment& segment : segments) {
      for (uint32_t row = 0; row < segment.rows; ++row) {
        const size_t position = segment.first_position + row;
        const size_t length = geometry.window == 0 ? position + 1 : geometry.window;
        const size_t first = window_start(length, position) / k_chunk_positions;
        for (size_t head = 0; head < heads; ++head) {
          const auto& chunks = given.at({segment.first_row + row, head});
          for (size_t c = first; c <= position / k_chunk_positions; ++c) {
            ASSERT_EQ(chunks.at(c), segment.block_table[c * 16]) << "round " << round;
          }
        }
      }
    }
    for (const AttentionItem& item : plan.items()) {
      ASSERT_LE(queries_of(plan, item), queries_max(64)) << "round " << round;
      ASSERT_GE(item.first_chunk, plan.units()[item.first_unit].first_chunk) << "round " << round;
      for (size_t u = item.first_unit; item.units > 1 && u < item.first_unit + item.units; ++u) {
        const AttentionUnit& unit = plan.units()[u];
        ASSERT_LE(window_start(unit.window, unit.first_position + unit.rows - 1),
                  item.first_chunk * k_chunk_positions)
            << "a shared chunk is not the whole of each row's";
      }
      shared_items += item.units > 1 ? 1 : 0;
    }
  }
  EXPECT_GT(shared_items, 50u);
}

TEST(AttentionPlanTest, ChunksOfTheSameBlocksAreReadOnce) {
  // 20 sequences: all share four chunks, half of them two more; then each has its own.
  const KvGeometry geometry = {.layers = 1, .kv_heads = 2, .head_dim = 64};
  std::deque<std::vector<int32_t>> tables;
  std::vector<Segment> segments;
  for (uint32_t i = 0; i < 20; ++i) {
    std::vector<int32_t> table(160);
    for (size_t b = 0; b < table.size(); ++b) {
      const bool common = b < 64 || (i % 2 == 0 && b < 96);
      table[b] = static_cast<int32_t>(common ? b : 1000 * (i + 1) + b);
    }
    tables.push_back(std::move(table));
    segments.push_back({tables.back().data(), i, 1, 2500});
  }
  AttentionPlan plan;
  plan.build(geometry, segments, 6, 2);
  size_t read = 0;
  for (const AttentionItem& item : plan.items()) read += item.chunks;
  // Own chunks: 2500 / 256 = 9, and the tenth that is not full.
  EXPECT_EQ(read, geometry.kv_heads * (4 + 2 + 10 * 4 + 10 * 6));
  EXPECT_EQ(plan.split_units().size(), 40u);
}

TEST(AttentionPlanTest, OneWhoseWindowBeginsLateLeavesTheOthersTheirSharing) {
  // 16 sequences have 15 chunks in common; so has one that is twice as far.
  std::deque<std::vector<int32_t>> tables;
  std::vector<Segment> segments;
  for (uint32_t i = 0; i < 17; ++i) {
    const uint32_t position = i == 8 ? 8000 : 3900;
    std::vector<int32_t> table(position / 16 + 1);
    for (size_t b = 0; b < table.size(); ++b) {
      table[b] = static_cast<int32_t>(b < 240 ? b : 1000 * (i + 1) + b);
    }
    tables.push_back(std::move(table));
    segments.push_back({tables.back().data(), i, 1, position});
  }
  for (const uint32_t window : {0u, 3500u}) {
    const KvGeometry geometry = {.layers = 1, .kv_heads = 1, .head_dim = 64, .window = window};
    AttentionPlan plan;
    plan.build(geometry, segments, 1, 2);
    size_t read = 0;
    for (const AttentionItem& item : plan.items()) read += item.chunks;
    // Shared once, the last chunk of each; of the one its own: 17 chunks, or all of its window.
    const size_t common = window == 0 ? 15 + 16 + 17 : 15 - 2 + 16 + 16 + 15;
    EXPECT_LE(read, common) << "window " << window;
  }
}

TEST(AttentionPlanTest, RunsCoverTheItemsAndAreAboutEquallyCostly) {
  Random random(k_plan_seed);
  AttentionPlan plan;
  for (int round = 0; round < 300; ++round) {
    const uint32_t kv_heads = 1 + random.below(8);
    const KvGeometry geometry = {.layers = 1, .kv_heads = kv_heads, .head_dim = 64};
    const uint32_t threads = 2 + random.below(31);
    const uint32_t depth = random.below(8000);
    Tables tables(random);
    std::vector<Segment> segments;
    for (uint32_t i = 0; i <= random.below(6); ++i) {
      const uint32_t position = depth / 2 + random.below(depth / 2 + 1);
      segments.push_back({tables.add(position + 1, false), i, 1, position});
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
        << "seed " << k_plan_seed << " round " << round << " threads " << threads;
  }
}

TEST(AttentionPlanTest, UnitsOfSeveralItemsHaveRoomForEachPartialResult) {
  AttentionPlan plan;
  const KvGeometry geometry = {.layers = 1, .kv_heads = 2, .head_dim = 64};
  const std::vector<int32_t> table(256);
  const Segment segment = {table.data(), 0, 1, 4095};
  plan.build(geometry, {&segment, 1}, 6, 4);
  ASSERT_EQ(plan.split_units().size(), 2u);
  const AttentionUnit& first = plan.units()[plan.split_units()[0]];
  const AttentionUnit& second = plan.units()[plan.split_units()[1]];
  EXPECT_EQ(first.end_chunk, 16u);
  EXPECT_EQ(second.partials, first.partials + 16 * 3 * partial_floats(64));
}

TEST(AttentionPlanTest, OneThreadCutsNothing) {
  AttentionPlan plan;
  const KvGeometry geometry = {.layers = 1, .kv_heads = 2, .head_dim = 64};
  const std::vector<int32_t> table(501);
  const Segment segment = {table.data(), 0, 1, 8000};
  plan.build(geometry, {&segment, 1}, 6, 1);
  EXPECT_EQ(plan.runs().size(), 1u);
  EXPECT_EQ(plan.items().size(), 2u);
  EXPECT_TRUE(plan.split_units().empty());
}

}  // namespace
}  // namespace outrider::kernels
