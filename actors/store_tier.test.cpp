#include "actors/store_tier.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "base/clock.hpp"
#include "kvstore/fixture.test.hpp"

namespace outrider::actors {
namespace {

using model::TierOffer;
using model::TierOffers;

/// A store in a directory of its own, and an engine's side of its tier.
class StoreTierTest : public testing::Test {
 protected:
  StoreTierTest() {
    kvstore::ColdStoreOptions options;
    options.directory = directory_.path();
    options.cap_bytes = uint64_t{64} << 20;
    options.direct_io = false;
    store_ = std::make_shared<kvstore::ColdStore>(options, kvstore::Surroundings{clock_});
    store_->drain();
    tier_ = make_store_tier(store_);
    tier_->serve(offers_);
  }

  void offer(uint32_t depth, const std::shared_ptr<const model::TierRetention>& retention) {
    TierOffer* slot = offers_->made.free_slot();
    ASSERT_NE(slot, nullptr);
    slot->block.id = sha256("block " + std::to_string(depth));
    slot->block.parent = sha256("block " + std::to_string(depth - 1));
    slot->block.depth = depth;
    slot->retention = retention;
    offers_->made.push();
  }
  /// Until the tier's thread is done with all that was offered.
  void look() {
    tier_->look();
    while (offers_->made.size() != 0) std::this_thread::yield();
  }

  const kvstore::testing_support::TemporaryDirectory directory_;
  SteadyClock clock_;
  std::shared_ptr<kvstore::ColdStore> store_;
  std::shared_ptr<model::BlockTier> tier_;
  std::shared_ptr<TierOffers> offers_ = std::make_shared<TierOffers>(4, 16, [] {});
  std::shared_ptr<const model::TierRetention> plain_ = std::make_shared<model::TierRetention>();
};

TEST_F(StoreTierTest, HandsBackWhatTheStoreWantsOfWhatStepsUse) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(offers_->wanted.size(), 0u);
    for (uint32_t depth = 0; depth < 3; ++depth) offer(depth, plain_);
    look();
  }
  ASSERT_EQ(offers_->wanted.size(), 3u) << "used twice";
  for (uint32_t depth = 0; depth < 3; ++depth) {
    EXPECT_EQ(offers_->wanted.front(depth)->block.depth, depth);
    EXPECT_EQ(offers_->wanted.front(depth)->block.tokens.size(), 16u);
  }
  for (uint32_t depth = 0; depth < 3; ++depth) offer(depth, plain_);
  look();
  EXPECT_EQ(offers_->wanted.size(), 4u);
  EXPECT_EQ(offers_->lost, 2u) << "nobody took the others";
}

TEST_F(StoreTierTest, KeepsWhatIsStoredAlreadyAsLongAsItIsAskedTo) {
  const auto pinned = std::make_shared<model::TierRetention>();
  pinned->pin = true;
  offer(0, plain_);
  offer(0, plain_);
  look();
  ASSERT_EQ(offers_->wanted.size(), 1u);
  TierOffer given = *offers_->wanted.front();
  EXPECT_EQ(given.wants, model::TierWants{.cold = true});
  given.block.k = given.block.v = std::vector<std::byte>(64);
  tier_->put(sha256("namespace"), 1, std::move(given));
  store_->drain();
  EXPECT_EQ(store_->stats().pinned_bytes, 0u);
  offer(0, pinned);
  look();
  store_->drain();
  EXPECT_EQ(offers_->wanted.size(), 1u) << "it is stored";
  EXPECT_GT(store_->stats().pinned_bytes, 0u);
}

TEST_F(StoreTierTest, CountsRefusedPinsForWhoAskedForThem) {
  const auto pinned = std::make_shared<model::TierRetention>();
  pinned->pin = true;
  pinned->pins_refused = std::make_shared<std::atomic<uint32_t>>(0);
  const auto put = [&](uint32_t depth, size_t bytes) {
    TierOffer given{.block = {}, .retention = pinned, .wants = {.cold = true}};
    model::TierBlock& block = given.block;
    block.id = sha256("large" + std::to_string(depth));
    if (depth != 0) block.parent = sha256("large" + std::to_string(depth - 1));
    block.depth = depth;
    block.tokens.resize(16);
    block.k = block.v = std::vector<std::byte>(bytes);
    tier_->put(sha256("namespace"), 1, std::move(given));
    store_->drain();
  };
  put(0, 64);
  EXPECT_EQ(*pinned->pins_refused, 0u);
  put(1, 2 << 20);  // more than a tenant's share
  EXPECT_EQ(*pinned->pins_refused, 1u);
  EXPECT_EQ(store_->match(sha256("namespace"), std::vector{sha256("large0"), sha256("large1")}),
            2u);
  tier_->retain({sha256("large1")}, *pinned);
  store_->drain();
  EXPECT_EQ(*pinned->pins_refused, 2u);
}

}  // namespace
}  // namespace outrider::actors
