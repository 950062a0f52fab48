#include "actors/warm_tier.hpp"

#include <gtest/gtest.h>

#include "model/memory_tier.test.hpp"

namespace outrider::actors {
namespace {

using model::TierLevel;
using model::TierWants;

constexpr size_t k_bytes = 64;
const Digest256 k_namespace = sha256("namespace");

BlockId id_of(uint32_t depth) {
  return sha256("block " + std::to_string(depth));
}

/// Memory of the host for four blocks, before a tier that keeps what is used twice or asked for.
class WarmTierTest : public testing::Test {
 protected:
  std::vector<TierWants> touch(uint32_t blocks, const model::TierRetention& how = {}) {
    std::vector<BlockId> chain;
    for (uint32_t i = 0; i < blocks; ++i) chain.push_back(id_of(i));
    return tier_->touch(chain, std::make_shared<model::TierRetention>(how));
  }
  bool put(uint32_t depth, TierWants wants) {
    const std::shared_ptr<std::byte> memory = tier_->warm_room(id_of(depth), k_bytes).memory;
    if (!memory) return false;
    std::fill_n(memory.get(), k_bytes, std::byte(depth));
    model::TierOffer offer{.block = {.id = id_of(depth),
                                     .parent = id_of(depth - 1),
                                     .depth = depth,
                                     .tokens = std::vector<int32_t>(16, int32_t(depth)),
                                     .k = SharedBytes(memory, {memory.get(), 32}),
                                     .v = SharedBytes(memory, {memory.get() + 32, 32})},
                           .retention = std::make_shared<model::TierRetention>(),
                           .wants = wants};
    tier_->put(k_namespace, 1, std::move(offer));
    return true;
  }
  /// The levels that blocks came from, and whether the end was told.
  std::vector<TierLevel> load(uint32_t blocks) {
    model::TierLoad load{.kv_namespace = k_namespace, .layers = 1, .block_bytes = k_bytes};
    for (uint32_t i = 0; i < blocks; ++i) {
      load.blocks.push_back({id_of(i), std::vector<int32_t>(16, int32_t(i))});
    }
    load.recompute = std::chrono::milliseconds(100);
    load.cancelled = std::make_shared<std::atomic<bool>>(false);
    std::vector<TierLevel> levels;
    done_ = false;
    tier_->load(std::move(load), {.blocks =
                                      [&](std::vector<model::TierLoadedBlock> came) {
                                        for (const auto& block : came) {
                                          EXPECT_EQ(*block.k.data(), std::byte(levels.size()));
                                          EXPECT_EQ(*block.v.data(), std::byte(levels.size()));
                                          levels.push_back(block.level);
                                        }
                                      },
                                  .done = [&] { done_ = true; }});
    while (!below_->waiting.empty()) below_->deliver(1);
    return levels;
  }

  std::shared_ptr<kvstore::WarmStore> store_ = [] {
    const std::shared_ptr<std::byte[]> memory(new std::byte[4 * k_bytes]);
    return std::make_shared<kvstore::WarmStore>(std::shared_ptr<std::byte>(memory, memory.get()),
                                                k_bytes, 4);
  }();
  std::shared_ptr<model::MemoryTier> below_ = std::make_shared<model::MemoryTier>();
  std::shared_ptr<model::BlockTier> tier_ = make_warm_tier(store_, below_);
  bool done_ = false;
};

TEST_F(WarmTierTest, EachBlockIsWantedOnceAndGoesDownFromHere) {
  EXPECT_EQ(touch(2), std::vector<TierWants>(2, {.warm = true}));
  ASSERT_TRUE(put(0, {.warm = true}));
  EXPECT_EQ(touch(2), (std::vector<TierWants>{{}, {.warm = true, .cold = true}}));
  ASSERT_EQ(below_->stored.size(), 1u) << "the second use: nobody has to copy it again";
  EXPECT_EQ(below_->stored.begin()->second.block.tokens, std::vector<int32_t>(16, 0));
  EXPECT_EQ(*below_->stored.begin()->second.block.k.data(), std::byte(0));
  ASSERT_TRUE(put(1, {.warm = true, .cold = true}));
  EXPECT_EQ(below_->stored.size(), 2u);
  EXPECT_FALSE(put(1, {.warm = true})) << "it is here: nobody makes room for it";
  EXPECT_TRUE(tier_->warm_room(id_of(1), k_bytes).is_there);
  EXPECT_EQ(store_->stats().evicted, 0u);
}

TEST_F(WarmTierTest, WhatTheTierBelowHasNoRoomForIsOwedIfItIsToBeKept) {
  put(0, {.warm = true});
  touch(1);
  below_->room_bytes = 0;
  EXPECT_EQ(touch(1), std::vector<TierWants>(1)) << "it is used again, or not";
  EXPECT_EQ(touch(1, {.tenant = "", .ttl_s = 5}),
            std::vector<TierWants>(1, {.warm = true, .cold = true}));
  EXPECT_TRUE(below_->stored.empty());
  below_->room_bytes = UINT64_MAX;
  EXPECT_EQ(touch(1), std::vector<TierWants>(1));
  EXPECT_EQ(below_->stored.size(), 1u);
}

TEST_F(WarmTierTest, ALoadGoesOnBelowWhereThisEnds) {
  for (uint32_t depth = 0; depth < 6; ++depth) put(depth, {.warm = true, .cold = true});
  ASSERT_EQ(below_->stored.size(), 6u);
  ASSERT_EQ(store_->touch(std::vector{id_of(1), id_of(2)}), (std::vector<bool>{true, false}));
  EXPECT_EQ(load(6), (std::vector<TierLevel>{TierLevel::warm, TierLevel::warm, TierLevel::cold,
                                             TierLevel::cold, TierLevel::cold, TierLevel::cold}));
  EXPECT_TRUE(done_);
  EXPECT_EQ(below_->recompute->count() / 1000, 66'666) << "of the four that were left";
  below_->loads = 0;
  EXPECT_EQ(load(2), std::vector<TierLevel>(2, TierLevel::warm));
  EXPECT_TRUE(done_);
  EXPECT_EQ(below_->loads, 0u);
}

TEST_F(WarmTierTest, WithoutATierBelowALoadEndsHere) {
  tier_ = make_warm_tier(store_, nullptr);
  put(0, {.warm = true});
  EXPECT_EQ(load(2), std::vector<TierLevel>(1, TierLevel::warm));
  EXPECT_TRUE(done_);
  EXPECT_EQ(touch(1), std::vector<TierWants>(1));
  tier_->forget_warm("another");
  EXPECT_EQ(store_->stats().blocks, 1u);
  tier_->forget_warm(std::nullopt);
  EXPECT_EQ(store_->stats().blocks, 0u);
}

}  // namespace
}  // namespace outrider::actors
