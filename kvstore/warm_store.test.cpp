#include "kvstore/warm_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "base/philox.hpp"
#include "kvstore/fixture.test.hpp"

namespace outrider::kvstore {
namespace {

using testing_support::block_id;
using testing_support::chain_ids;
using testing_support::k_test_ns;

constexpr size_t k_slot = 64;

std::unique_ptr<WarmStore> make_store(size_t slots) {
  const std::shared_ptr<std::byte[]> memory(new std::byte[slots * k_slot]);
  return std::make_unique<WarmStore>(std::shared_ptr<std::byte>(memory, memory.get()), k_slot,
                                     slots);
}

/// False: no slot is free.
bool put(WarmStore& store, uint64_t chain, uint32_t depth, const std::string& tenant = "") {
  const std::shared_ptr<std::byte> slot = store.slot();
  if (!slot) return false;
  const BlockId id = block_id(chain, depth);
  std::memcpy(slot.get(), id.data(), sizeof(id));
  store.put({.ns = k_test_ns,
             .id = id,
             .parent = depth == 0 ? BlockId{} : block_id(chain, depth - 1),
             .depth = depth,
             .layers = 1,
             .tenant = tenant,
             .tokens = {static_cast<int32_t>(chain), static_cast<int32_t>(depth)},
             .k = SharedBytes(slot, {slot.get(), 32}),
             .v = SharedBytes(slot, {slot.get() + 32, 32})});
  store.check();
  return true;
}

/// As it was put: nobody wrote over its slot.
bool is_whole(const WarmBlock& block) {
  return std::memcmp(block.k.data(), block.id.data(), sizeof(block.id)) == 0;
}

TEST(WarmStore, GivesWhatItWasGivenToWhoAsksForTheSame) {
  const auto store = make_store(4);
  ASSERT_TRUE(put(*store, 1, 0));
  const std::vector<int32_t> tokens = {1, 0};
  const auto block = store->find(k_test_ns, block_id(1, 0), tokens);
  ASSERT_NE(block, nullptr);
  EXPECT_TRUE(is_whole(*block));
  EXPECT_EQ(store->find(Digest256{}, block_id(1, 0), tokens), nullptr);
  EXPECT_EQ(store->find(k_test_ns, block_id(1, 0), std::vector<int32_t>{1, 1}), nullptr);
  EXPECT_EQ(store->find(k_test_ns, block_id(1, 1), tokens), nullptr);
}

TEST(WarmStore, TheLeastRecentlyUsedLeafMakesRoom) {
  const auto store = make_store(4);
  for (const uint64_t chain : {1, 2}) {
    for (uint32_t depth = 0; depth < 2; ++depth) put(*store, chain, depth);
  }
  EXPECT_EQ(store->touch(chain_ids(1, 3)), (std::vector<bool>{true, true, false}));
  put(*store, 3, 0);
  EXPECT_EQ(store->touch(chain_ids(2, 2)), (std::vector<bool>{true, false})) << "its end";
  put(*store, 3, 1);
  EXPECT_EQ(store->touch(chain_ids(1, 2)), (std::vector<bool>{true, false})) << "used before 2's";
  EXPECT_EQ(store->stats().evicted, 2u);
}

TEST(WarmStore, WhoeverHasMostMakesRoomForOthers) {
  const auto store = make_store(6);
  for (uint64_t chain = 1; chain <= 2; ++chain) put(*store, chain, 0, "small");
  for (uint64_t chain = 11; chain <= 40; ++chain) put(*store, chain, 0, "flood");
  for (uint64_t chain = 1; chain <= 2; ++chain) {
    EXPECT_NE(store->find(block_id(chain, 0)), nullptr) << chain;
  }
  put(*store, 50, 0, "new");
  EXPECT_NE(store->find(block_id(1, 0)), nullptr);
  EXPECT_EQ(store->find(block_id(37, 0)), nullptr) << "the oldest of the flood";
}

TEST(WarmStore, WhatIsReadStaysAsItIsUntilItsReaderIsDone) {
  auto store = make_store(2);
  put(*store, 1, 0);
  put(*store, 2, 0);
  auto first = store->find(block_id(1, 0));
  auto second = store->find(block_id(2, 0));
  EXPECT_FALSE(put(*store, 3, 0));
  EXPECT_EQ(store->stats().refused, 1u);
  EXPECT_EQ(store->stats().blocks, 2u) << "nobody lost it for nothing";
  second.reset();
  EXPECT_TRUE(put(*store, 3, 0)) << "the older one is read, the other makes room";
  EXPECT_EQ(store->touch(chain_ids(2, 1)), std::vector<bool>{false});
  second = std::exchange(first, nullptr);
  EXPECT_TRUE(is_whole(*second));
  store.reset();
  EXPECT_TRUE(is_whole(*second)) << "its slot outlives the store";
}

TEST(WarmStore, ForgetsOneTenantOrAll) {
  const auto store = make_store(8);
  for (uint32_t depth = 0; depth < 3; ++depth) put(*store, 1, depth, "ann");
  for (uint32_t depth = 0; depth < 3; ++depth) put(*store, 2, depth, "bob");
  store->forget("ann");
  store->check();
  EXPECT_EQ(store->touch(chain_ids(1, 3)), std::vector<bool>(3, false));
  EXPECT_EQ(store->touch(chain_ids(2, 3)), std::vector<bool>(3, true));
  store->forget(std::nullopt);
  store->check();
  EXPECT_EQ(store->stats().blocks, 0u);
  for (uint32_t depth = 0; depth < 8; ++depth) EXPECT_TRUE(put(*store, 3, depth));
  EXPECT_EQ(store->stats().evicted, 0u) << "all slots are free again";
}

TEST(WarmStore, ThreadsReadWhileOthersBring) {
  const auto store = make_store(6);
  std::thread reader([&] {
    Random random(1);
    for (int i = 0; i < 20'000; ++i) {
      const auto found = store->find(block_id(random.below(8), 0));
      if (found) ASSERT_TRUE(is_whole(*found));
    }
  });
  Random random(2);
  for (int i = 0; i < 2'000; ++i) put(*store, random.below(8), 0);
  reader.join();
  store->check();
}

/// The same by looking at every block each time.
class NaiveStore {
 public:
  explicit NaiveStore(size_t slots) : slots_(slots) {}

  void put(uint64_t chain, uint32_t depth, const std::string& tenant) {
    if (blocks_.size() == slots_) evict();
    const BlockId id = block_id(chain, depth);
    if (find(id) != blocks_.end()) return;
    const BlockId parent = depth == 0 ? BlockId{} : block_id(chain, depth - 1);
    blocks_.push_back({id, parent, tenant, ++uses_});
  }
  void touch(const std::vector<BlockId>& chain) {
    for (auto id = chain.rbegin(); id != chain.rend(); ++id) {
      if (const auto at = find(*id); at != blocks_.end()) at->used_at = ++uses_;
    }
  }
  bool holds(const BlockId& id) { return find(id) != blocks_.end(); }
  size_t size() const { return blocks_.size(); }

 private:
  struct Block {
    BlockId id, parent;
    std::string tenant;
    uint64_t used_at;
  };
  std::deque<Block>::iterator find(const BlockId& id) {
    return std::ranges::find(blocks_, id, &Block::id);
  }
  void evict() {
    const auto key = [&](const Block& block) {
      const auto of = std::ranges::count(blocks_, block.tenant, &Block::tenant);
      return std::pair(of, block.tenant);
    };
    const auto most = key(*std::ranges::max_element(blocks_, {}, key));
    auto victim = blocks_.end();
    for (auto at = blocks_.begin(); at != blocks_.end(); ++at) {
      const bool has_child = std::ranges::find(blocks_, at->id, &Block::parent) != blocks_.end();
      if (key(*at) != most || has_child) continue;
      if (victim == blocks_.end() || at->used_at < victim->used_at) victim = at;
    }
    blocks_.erase(victim);
  }

  size_t slots_;
  std::deque<Block> blocks_;
  uint64_t uses_ = 0;
};

TEST(WarmStore, DoesWhatANaiveOneDoes) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const size_t slots = 1 + random.below(24);
    const auto store = make_store(slots);
    NaiveStore naive(slots);
    for (int i = 0; i < 400; ++i) {
      const uint64_t chain = random.below(6);
      const auto tenant = std::string(1, static_cast<char>('a' + chain % 3));
      const uint32_t depth = random.below(6);
      if (random.chance(0.6f)) {
        ASSERT_TRUE(put(*store, chain, depth, tenant));
        naive.put(chain, depth, tenant);
      } else {
        store->touch(chain_ids(chain, depth));
        naive.touch(chain_ids(chain, depth));
      }
      ASSERT_EQ(store->stats().blocks, naive.size());
      for (uint64_t c = 0; c < 6; ++c) {
        for (uint32_t d = 0; d < 6; ++d) {
          const auto found = store->find(block_id(c, d));
          ASSERT_EQ(found != nullptr, naive.holds(block_id(c, d))) << c << ' ' << d;
          ASSERT_TRUE(!found || is_whole(*found));
        }
      }
    }
  }
}

}  // namespace
}  // namespace outrider::kvstore
