// The pure parts: what is worth a write, what is worth a read, who makes room.

#include <gtest/gtest.h>

#include "kvstore/admission.hpp"
#include "kvstore/cold_index.hpp"
#include "kvstore/fixture.test.hpp"
#include "kvstore/load_gate.hpp"

namespace outrider::kvstore {
namespace {

using std::chrono::milliseconds;
using testing_support::block_id;
using testing_support::chain_ids;

TEST(Admission, ABlockIsWantedFromItsSecondTouchOn) {
  Admission admission(100);
  EXPECT_EQ(admission.touch(chain_ids(1, 2), false), std::vector<bool>(2, false));
  EXPECT_EQ(admission.touch(chain_ids(1, 3), false), (std::vector<bool>{true, true, false}));
}

TEST(Admission, ABlockThatTwoChainsGoOnFromIsWanted) {
  Admission admission(100);
  const BlockId root = block_id(1, 0);
  const std::vector<BlockId> one = {root, block_id(2, 1)};
  const std::vector<BlockId> other = {root, block_id(3, 1)};
  admission.touch(one, false);
  EXPECT_EQ(admission.touch(other, false), (std::vector<bool>{true, false}));
}

TEST(Admission, AHintIsEnough) {
  Admission admission(100);
  EXPECT_EQ(admission.touch(chain_ids(1, 2), true), std::vector<bool>(2, true));
}

TEST(Admission, RemembersNoMoreThanItsCapacity) {
  Admission admission(64);
  for (uint64_t i = 0; i < 1000; ++i) {
    admission.touch(chain_ids(i, 1), false);
    ASSERT_LE(admission.remembered(), 64u);
  }
  EXPECT_EQ(admission.touch(chain_ids(999 - 30, 1), false), std::vector<bool>{true});
  EXPECT_EQ(admission.touch(chain_ids(0, 1), false), std::vector<bool>{false}) << "forgotten";
}

TEST(LoadGate, LoadsOnlyWhatIsExpectedToBeFasterByEnough) {
  EXPECT_TRUE(worth_loading(milliseconds(79), milliseconds(100)));
  EXPECT_FALSE(worth_loading(milliseconds(80), milliseconds(100)));
  EXPECT_FALSE(worth_loading(milliseconds(1), milliseconds(0)));
  EXPECT_TRUE(worth_loading(milliseconds(100), milliseconds(100), 1.1));
}

TEST(LoadGate, PredictsLatencyTransferAndWhatWaitsBefore) {
  const ReadSpeed speed{0.010, 100e6};
  EXPECT_EQ(predicted_load(speed, {0, 0}), milliseconds(10));
  EXPECT_EQ(predicted_load(speed, {50'000'000, 0}), milliseconds(510));
  EXPECT_EQ(predicted_load(speed, {50'000'000, 100'000'000}), milliseconds(1510));
  EXPECT_GT(predicted_load({0, 1e6}, {UINT64_MAX, UINT64_MAX}), std::chrono::minutes(10));
}

TEST(LoadGate, SpeedFollowsWhatIsMeasured) {
  ReadSpeed speed{0.002, 300e6};
  for (int i = 0; i < 40; ++i)
    speed = after_load(speed, 1'000'000, milliseconds(20), milliseconds(5));
  EXPECT_NEAR(speed.bytes_per_second, 50e6, 1e6);
  EXPECT_NEAR(speed.latency_s, 0.005, 1e-4);
  speed = after_load(speed, 0, Duration(0), Duration(0));
  EXPECT_NEAR(speed.bytes_per_second, 50e6, 1e6) << "nothing read says nothing";
  for (int i = 0; i < 400; ++i) speed = after_load(speed, 1, std::chrono::hours(1), Duration(0));
  EXPECT_GE(speed.bytes_per_second, 1e6) << "a stuck disk does not close the gate for good";
}

Row row_of(uint64_t tenant, uint32_t bytes, uint64_t sequence) {
  Row row;
  row.ns = 7;
  row.tenant = tenant;
  row.bytes = bytes;
  row.sequence = sequence;
  return row;
}

TEST(ColdIndex, TheLeavesOfAChainMakeRoomBeforeItsRoot) {
  ColdIndex index({100, 10, 40});
  const auto chain = chain_ids(1, 4);
  for (uint32_t i = 0; i < 4; ++i) {
    Row row = row_of(1, 10, i + 1);
    row.depth = i;
    row.parent = i == 0 ? 0 : short_of(chain[i - 1]);
    ASSERT_TRUE(index.insert(chain[i], row));
  }
  // Whatever was used last.
  index.use({&chain[3], 1}, 5);
  std::vector<BlockId> evicted;
  EXPECT_EQ(index.reserve(block_id(2, 0), row_of(1, 15, 0), evicted), Room::granted);
  EXPECT_EQ(evicted, (std::vector<BlockId>{chain[3], chain[2]}));
  EXPECT_EQ(index.match(7, chain, 0), 2u);
  EXPECT_TRUE(index.consistent());
}

TEST(ColdIndex, AChainThatGrowsOverItsQuotaKeepsWhatIsHere) {
  ColdIndex index({100, 10, 60});
  const auto chain = chain_ids(1, 8);
  const auto link = [&](uint32_t i) {
    Row row = row_of(1, 10, i + 1);
    row.depth = i;
    row.parent = i == 0 ? 0 : short_of(chain[i - 1]);
    return row;
  };
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(index.insert(chain[i], link(i)));
  std::vector<BlockId> evicted;
  EXPECT_EQ(index.reserve(chain[4], link(4), evicted), Room::granted);
  EXPECT_EQ(index.reserve(chain[5], link(5), evicted), Room::granted);
  EXPECT_EQ(index.reserve(chain[6], link(6), evicted), Room::over_quota);
  EXPECT_EQ(index.reserve(block_id(2, 0), row_of(1, 10, 0), evicted), Room::over_quota)
      << "what is here is continued by what is on its way";
  EXPECT_TRUE(evicted.empty());
  index.release(chain[5]);
  index.release(chain[4]);
  ASSERT_TRUE(index.insert(chain[4], link(4)));
  EXPECT_EQ(index.match(7, chain, 0), 5u);
  EXPECT_EQ(index.eviction_order(1), std::vector<BlockId>{chain[4]});
  EXPECT_TRUE(index.consistent());
}

TEST(ColdIndex, OneTenantNeverMakesRoomForAnother) {
  ColdIndex index({100, 10, 40});
  index.set_quota(2, 20);
  for (uint32_t i = 0; i < 4; ++i) index.insert(block_id(1, i), row_of(1, 10, i + 1));
  std::vector<BlockId> evicted;
  EXPECT_EQ(index.reserve(block_id(2, 0), row_of(2, 21, 0), evicted), Room::over_quota);
  EXPECT_EQ(index.reserve(block_id(2, 0), row_of(2, 20, 0), evicted), Room::granted);
  EXPECT_EQ(index.reserve(block_id(2, 1), row_of(2, 1, 0), evicted), Room::over_quota)
      << "all is reserved";
  EXPECT_TRUE(evicted.empty());
  EXPECT_EQ(index.reserve(block_id(1, 0), row_of(1, 10, 0), evicted), Room::duplicate);
}

TEST(ColdIndex, NobodyLeavesForWhatDoesNotComeIn) {
  ColdIndex index({100, 10, 40});
  // A root that another tenant's block continues cannot leave, and is not pinned either.
  ASSERT_TRUE(index.insert(block_id(1, 0), row_of(1, 20, 1)));
  Row other = row_of(2, 10, 2);
  other.parent = short_of(block_id(1, 0));
  other.depth = 1;
  ASSERT_TRUE(index.insert(block_id(2, 1), other));
  ASSERT_TRUE(index.insert(block_id(3, 0), row_of(1, 20, 3)));
  std::vector<BlockId> evicted;
  EXPECT_EQ(index.reserve(block_id(4, 0), row_of(1, 30, 0), evicted), Room::over_quota);
  EXPECT_TRUE(evicted.empty());
  EXPECT_EQ(index.rows(), 3u);
  EXPECT_EQ(index.reserve(block_id(4, 0), row_of(1, 20, 0), evicted), Room::granted);
  EXPECT_EQ(evicted, std::vector<BlockId>{block_id(3, 0)});
}

/// A tenant of a quota of 20 that stores records of 10 by the side of others.
class Churning : public ::testing::Test {
 protected:
  Churning() { index_.set_quota(1, 20); }

  Room store(uint64_t chain) {
    std::vector<BlockId> evicted;
    const Room room = index_.reserve(block_id(chain, 0), row_of(1, 10, 0), evicted);
    if (room != Room::granted) return room;
    index_.release(block_id(chain, 0));
    EXPECT_TRUE(index_.insert(block_id(chain, 0), row_of(1, 10, ++sequence_)));
    return room;
  }
  std::vector<BlockId> spare(uint32_t bytes = 10) {
    return index_.spare(block_id(9, 9), row_of(1, bytes, 0),
                        [this](const BlockId& id) { return id == moving_; });
  }
  /// Before a write falls out soon, before another next.
  void note_leaving(uint64_t soon, uint64_t next) { index_.note_leaving({soon, next, cap_bytes_}); }
  uint64_t dead_bytes(size_t tenant) { return index_.tenants()[tenant].dead_bytes; }

  ColdIndex index_{{5000, 10, 1000}};
  uint64_t sequence_ = 0;
  uint64_t cap_bytes_ = 100'000;
  BlockId moving_{};
};

TEST_F(Churning, NothingComesWhileOthersAreAboutToFallOutByIt) {
  ASSERT_TRUE(index_.insert(block_id(2, 0), row_of(2, 10, ++sequence_)));
  for (uint64_t chain = 10; chain < 20; ++chain) EXPECT_EQ(store(chain), Room::granted);
  EXPECT_EQ(dead_bytes(0), 80u);
  note_leaving(2, 1);
  EXPECT_EQ(store(20), Room::granted) << "before long is not yet";
  EXPECT_FALSE(index_.oldest_to_spare(row_of(1, 10, 0)));
  note_leaving(2, 2);
  EXPECT_EQ(store(21), Room::dead_bytes);
  EXPECT_EQ(index_.oldest_to_spare(row_of(1, 10, 0)), 1u);
  EXPECT_EQ(index_.others_until(row_of(1, 10, 0), 5), std::vector<BlockId>{block_id(2, 0)});
  EXPECT_EQ(spare(), std::vector<BlockId>{block_id(2, 0)});
  index_.move(block_id(2, 0), Place::fifo, ++sequence_);
  EXPECT_EQ(dead_bytes(1), 0u) << "who is spared does not pay for it";
  EXPECT_EQ(store(21), Room::granted);
  std::vector<BlockId> aged;
  index_.age_out(64, aged);
  EXPECT_EQ(dead_bytes(0), 0u);
  EXPECT_TRUE(index_.consistent());
}

TEST_F(Churning, WhatCouldNotComeInIsRefusedForThat) {
  ASSERT_TRUE(index_.insert(block_id(200, 0), row_of(2, 10, ++sequence_)));
  ASSERT_EQ(store(1), Room::granted);
  ASSERT_EQ(store(2), Room::granted);
  note_leaving(2, 2);
  std::vector<BlockId> evicted;
  EXPECT_EQ(index_.reserve(block_id(3, 0), row_of(1, 21, 0), evicted), Room::over_quota);
  EXPECT_EQ(index_.reserve(block_id(3, 0), row_of(1, 20, 0), evicted), Room::dead_bytes);
  EXPECT_TRUE(evicted.empty()) << "what is refused evicts nothing";
}

TEST_F(Churning, NothingMovesWhereOthersLeaveLessThanAFifth) {
  cap_bytes_ = 100;
  for (uint64_t chain = 100; chain < 108; ++chain) {
    ASSERT_TRUE(index_.insert(block_id(chain, 0), row_of(2, 10, ++sequence_)));
  }
  ASSERT_EQ(store(1), Room::granted);
  ASSERT_EQ(store(2), Room::granted);
  note_leaving(8, 4);
  EXPECT_TRUE(index_.oldest_to_spare(row_of(1, 10, 0)));
  EXPECT_EQ(spare().size(), 4u);
  ASSERT_TRUE(index_.insert(block_id(3, 0), row_of(3, 1, ++sequence_)));
  EXPECT_FALSE(index_.oldest_to_spare(row_of(1, 10, 0)));
  EXPECT_TRUE(spare().empty());
  EXPECT_EQ(store(4), Room::dead_bytes);
}

TEST_F(Churning, OthersAreSparedByTheBytesThatCome) {
  for (uint64_t chain = 100; chain < 105; ++chain) {
    ASSERT_TRUE(index_.insert(block_id(chain, 0), row_of(2, 30, ++sequence_)));
  }
  EXPECT_TRUE(spare().empty()) << "it has not too much";
  ASSERT_EQ(store(1), Room::granted);
  ASSERT_EQ(store(2), Room::granted);
  note_leaving(5, 0);
  EXPECT_TRUE(spare(5).empty()) << "20 bytes are owed, the oldest has 30";
  EXPECT_EQ(spare(5), std::vector<BlockId>{block_id(100, 0)});
  moving_ = block_id(101, 0);
  EXPECT_EQ(spare(5), std::vector<BlockId>{block_id(102, 0)}) << "each once";
  note_leaving(6, 0);
  EXPECT_EQ(spare(20).size(), 2u) << "of those that fall out before long";
  note_leaving(50, 0);
  for (uint64_t chain = 200; chain < 204; ++chain) {
    ASSERT_TRUE(index_.insert(block_id(chain, 0), row_of(2, 30, 10 + chain)));
  }
  note_leaving(300, 0);
  EXPECT_TRUE(spare(5).empty()) << "what was owed beyond them is forgotten";
}

TEST_F(Churning, ItsOwnRecordsDoNotHideOthers) {
  index_.set_quota(1, 40'000);
  for (uint64_t chain = 0; chain < 3000; ++chain) {
    ASSERT_TRUE(index_.insert(block_id(1000 + chain, 0), row_of(1, 10, ++sequence_)));
  }
  ASSERT_TRUE(index_.insert(block_id(2, 0), row_of(2, 10, ++sequence_)));
  index_.set_quota(1, 20'000);
  note_leaving(sequence_ + 1, sequence_ + 1);
  EXPECT_EQ(spare(), std::vector<BlockId>{block_id(2, 0)});
}

TEST(ColdIndex, AFullIndexTakesTheOwnOldestOrRefuses) {
  ColdIndex index({2, 10, 1000});
  index.insert(block_id(1, 0), row_of(1, 10, 1));
  index.insert(block_id(1, 1), row_of(1, 10, 2));
  EXPECT_FALSE(index.insert(block_id(1, 2), row_of(1, 10, 3)));
  std::vector<BlockId> evicted;
  EXPECT_EQ(index.reserve(block_id(2, 0), row_of(2, 10, 0), evicted), Room::index_full);
  EXPECT_EQ(index.reserve(block_id(1, 2), row_of(1, 10, 0), evicted), Room::granted);
  EXPECT_EQ(evicted, std::vector<BlockId>{block_id(1, 0)});
}

TEST(ColdIndex, TenantsBeyondTheBoundShareOneAccount) {
  ColdIndex index({100, 2, 25});
  for (uint64_t tenant = 1; tenant <= 5; ++tenant) {
    index.insert(block_id(tenant, 0), row_of(tenant, 10, tenant));
  }
  EXPECT_LE(index.tenants().size(), 3u);
  EXPECT_EQ(index.bytes(), 50u);
}

}  // namespace
}  // namespace outrider::kvstore
