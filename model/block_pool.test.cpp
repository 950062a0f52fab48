#include "model/block_pool.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/philox.hpp"
#include "model/fuzz_operations.test.hpp"

namespace outrider::model {
namespace {

/// The pool's contract, said with a map.
struct NaivePool {
  uint32_t total = 0;
  std::map<int32_t, uint32_t> used;

  std::vector<uint32_t> refs() const {
    std::vector<uint32_t> out(total, 0);
    for (const auto& [id, count] : used) out[static_cast<size_t>(id)] = count;
    return out;
  }
  int32_t pick(Random& random) const {
    auto at = used.begin();
    std::advance(at, random.below(static_cast<uint32_t>(used.size())));
    return at->first;
  }
};

TEST(BlockPool, FreshBlocksComeInAscendingOrderAndTheLastFreedFirst) {
  BlockPool pool(3);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  pool.unref(0);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), std::nullopt);
}

TEST(BlockPool, ABlockIsFreedWithItsLastReference) {
  BlockPool pool(1);
  const int32_t id = *pool.allocate();
  pool.ref(id);
  pool.unref(id);
  EXPECT_EQ(pool.free(), 0u);
  pool.unref(id);
  EXPECT_EQ(pool.free(), 1u);
}

TEST(BlockPoolDeathTest, UsingAFreeBlockAborts) {
  BlockPool pool(1);
  EXPECT_DEATH(pool.unref(0), "refs");
  EXPECT_DEATH(pool.ref(0), "refs");
  EXPECT_DEATH(pool.refs(1), "total");
}

TEST(BlockPoolDeathTest, AWrongCountIsNotConserved) {
  BlockPool pool(2);
  (void)pool.allocate();
  const std::vector<uint32_t> surplus = {1, 1};
  const std::vector<uint32_t> missing = {0, 0};
  EXPECT_DEATH(pool.check_conservation(surplus), "expected");
  EXPECT_DEATH(pool.check_conservation(missing), "expected");
}

TEST(BlockPool, BehavesLikeTheNaiveModelUnderRandomCalls) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    NaivePool naive{1 + random.below(64), {}};
    BlockPool pool(naive.total);
    for (uint64_t i = 0; i < fuzz_operations(1'000'000) / 4; ++i) {
      const uint32_t action = random.below(10);
      if (action < 4) {
        const auto id = pool.allocate();
        ASSERT_EQ(id.has_value(), naive.used.size() < naive.total);
        if (id) {
          ASSERT_TRUE(naive.used.emplace(*id, 1).second);
        }
      } else if (!naive.used.empty()) {
        const int32_t id = naive.pick(random);
        if (action < 6) {
          pool.ref(id);
          ++naive.used[id];
        } else {
          pool.unref(id);
          if (--naive.used[id] == 0) naive.used.erase(id);
        }
      }
      ASSERT_EQ(pool.used(), naive.used.size());
      if (i % 64 == 0) pool.check_conservation(naive.refs());
    }
  }
}

}  // namespace
}  // namespace outrider::model
