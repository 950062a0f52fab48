// The pure parts: what is worth a write, what is worth a read, who makes room.

#include <gtest/gtest.h>

#include "kvstore/admission.hpp"
#include "kvstore/cold_index.hpp"
#include "kvstore/fixture.test.hpp"
#include "kvstore/load_gate.hpp"

namespace outrider::kvstore {
namespace {

using std::chrono::milliseconds;
using testing::block_id;
using testing::chain_ids;

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

TEST(ColdIndex, DeadBytesCountWhileOthersBlocksAreTheNextToFallOut) {
  ColdIndex index({100, 10, 1000});
  index.set_quota(1, 20);
  ASSERT_TRUE(index.insert(block_id(2, 0), row_of(2, 10, 1)));
  uint64_t sequence = 1;
  const auto store = [&](uint64_t chain) {
    std::vector<BlockId> evicted;
    const Room room = index.reserve(block_id(chain, 0), row_of(1, 10, 0), evicted);
    if (room != Room::granted) return room;
    index.release(block_id(chain, 0));
    EXPECT_TRUE(index.insert(block_id(chain, 0), row_of(1, 10, ++sequence)));
    return room;
  };
  for (uint64_t chain = 10; chain < 20; ++chain) EXPECT_EQ(store(chain), Room::granted);
  EXPECT_EQ(index.tenants()[0].dead_bytes, 80u);
  index.note_leaving(2);
  EXPECT_EQ(store(20), Room::dead_bytes);
  EXPECT_EQ(index.leaving_of_others(1, 9), std::vector<BlockId>{block_id(2, 0)});
  index.move(block_id(2, 0), Place::fifo, ++sequence);
  EXPECT_EQ(store(20), Room::granted) << "nobody else loses by it";
  index.note_leaving(sequence + 1);
  EXPECT_EQ(store(21), Room::dead_bytes);
  std::vector<BlockId> aged;
  index.age_out(64, aged);
  EXPECT_EQ(index.tenants()[0].dead_bytes, 0u);
  EXPECT_TRUE(index.consistent());
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
