#include "model/decode_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::model {
namespace {

using testing::ElementsAre;

constexpr DecodePlan k_plan = {.rows = {128, 256, 0}};

ChunkCosts costs(std::vector<int64_t> row_ns) {
  ChunkCosts out{.rows = {128, 256, 512}, .buckets = {}};
  for (size_t i = 0; i < row_ns.size(); ++i) {
    out.buckets[0].emplace_back(row_ns[i] * out.rows[i]);
  }
  return out;
}

TEST(DecodePlan, BoundsAChunkByTheTokensBeforeIt) {
  EXPECT_EQ(k_plan.rows_max(0), 128u);
  EXPECT_EQ(k_plan.rows_max(512), 128u);
  EXPECT_EQ(k_plan.rows_max(513), 256u);
  EXPECT_EQ(k_plan.rows_max(2048), 256u);
  EXPECT_EQ(k_plan.rows_max(2049), UINT32_MAX);
  EXPECT_EQ(DecodePlan{}.rows_max(100), UINT32_MAX);
}

TEST(DecodePlan, IsSaidInWords) {
  EXPECT_EQ(to_string(k_plan),
            "chunks of 128 rows behind up to 512 tokens, 256 up to 2048, any above");
}

TEST(ChooseChunks, TakesTheCheapestRows) {
  EXPECT_EQ(choose_chunks(costs({900, 1000, 1100}))[0], 128u);
  EXPECT_EQ(choose_chunks(costs({1000, 900, 1100}))[0], 256u);
  EXPECT_EQ(choose_chunks(costs({1100, 1000, 900}))[0], 0u);
}

TEST(ChooseChunks, TakesTheLargestOfThoseThatCostHardlyMore) {
  EXPECT_EQ(choose_chunks(costs({970, 985, 1000}))[0], 0u);
  EXPECT_EQ(choose_chunks(costs({970, 985, 1100}))[0], 256u);
}

TEST(ChooseChunks, DecidesEachBucketAndCarriesOnWhereNothingWasMeasured) {
  ChunkCosts three = costs({900, 1000, 1100});
  EXPECT_THAT(choose_chunks(three), ElementsAre(128, 128, 128));
  three.buckets[1] = costs({1100, 1000, 900}).buckets[0];
  EXPECT_THAT(choose_chunks(three), ElementsAre(128, 0, 0));
  three.buckets[2] = costs({1100, 900, 1100}).buckets[0];
  EXPECT_THAT(choose_chunks(three), ElementsAre(128, 0, 256));
  EXPECT_THAT(choose_chunks(ChunkCosts{}), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace outrider::model
