#include "model/prefix_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/limits.hpp"
#include "base/philox.hpp"
#include "model/fuzz_operations.test.hpp"
#include "model/kv_cache.hpp"

/// The prefix index and the sequences that share its blocks, beside a naive twin: what is there,
/// what is held or pinned, what is evicted when memory runs out, and what the blocks hold.
namespace outrider::model {
namespace {

constexpr uint32_t k_block_tokens = 16;
constexpr kernels::KvGeometry k_geometry = {.layers = 1,
                                            .kv_heads = 1,
                                            .head_dim = 1,
                                            .block_tokens = k_block_tokens,
                                            .k_kind = kernels::KvKind::fp32,
                                            .v_kind = kernels::KvKind::fp32};
constexpr uint32_t k_depth_max = 6;  ///< blocks
constexpr uint32_t k_letters = 2;    ///< Contents that may follow one another.

BlockId id_of(uint32_t node) {
  return sha256(std::to_string(node));
}

/// Prefixes as nodes of a complete tree: 0 is the empty one, children of n are n * k_letters + 1 ….
uint32_t child_of(uint32_t node, uint32_t letter) {
  return node * k_letters + 1 + letter;
}

/// All nodes below a first one are of its owner.
uint64_t owner_of(uint32_t node) {
  while (node > k_letters) node = (node - 1) / k_letters;
  return node;
}

struct NaiveBlock {
  uint32_t node = 0;  ///< Published as; 0: not.
};
using Handle = std::shared_ptr<NaiveBlock>;

struct Cached {
  Handle block;
  uint64_t released = 0;      ///< When the last sequence let go.
  int64_t pinned_until = -1;  ///< -1: it is not.
};

uint32_t pins_max(uint32_t blocks) {
  return blocks * limits::kv_pool_pinned_percent / 100;
}
/// Of one owner.
uint32_t own_max(uint32_t blocks) {
  return (pins_max(blocks) + 1) / 2;
}

struct Pair {
  KvSequence real;
  std::vector<Handle> blocks;
  uint32_t length = 0;

  uint32_t published() const {
    uint32_t n = 0;
    while (n < length / k_block_tokens && blocks[n]->node != 0) ++n;
    return n;
  }
  /// The node that its next published block continues.
  uint32_t node() const { return published() == 0 ? 0 : blocks[published() - 1]->node; }
};

class Twin {
 public:
  explicit Twin(uint64_t seed) : random_(seed) {
    total_ = 3 + random_.below(30);
    cache_ = std::move(KvCache::create(kernels::make_ref_ops(), k_geometry, total_)).value();
    for (uint32_t node = 0; node < child_of(0, 0) << (k_depth_max + 1); ++node) {
      ids_.push_back(id_of(node));
    }
  }

  void operate() {
    if (pairs_.empty() || (pairs_.size() < 6 && random_.chance(0.1f))) {
      pairs_.push_back({KvSequence(*cache_), {}, 0});
    }
    auto at = pairs_.begin();
    std::advance(at, random_.below(static_cast<uint32_t>(pairs_.size())));
    if (random_.chance(0.05f)) return pass_time();
    if (random_.chance(0.01f)) return forget();
    switch (random_.below(9)) {
      case 0:
      case 1:
        return append(*at, random_.chance(0.6f) ? k_block_tokens : random_.below(40));
      case 2:
      case 3:
        return publish(*at);
      case 4:
        return take(*at);
      case 5:
        return crop(*at, random_.chance(0.3f) ? 0 : random_.below(at->length + 1));
      case 6:
        if (pairs_.size() < 8) fork(*at);
        return;
      case 7:
        return pin(*at);
      default:
        if (random_.chance(0.2f)) {
          const uint32_t count = random_.below(4);
          uint32_t evicted = 0;
          while (evicted < count && evict()) ++evicted;
          ASSERT_EQ(cache_->evict(count), evicted);
        } else if (random_.chance(0.2f)) {
          crop(*at, 0);
          pairs_.erase(at);
        }
    }
  }

  /// Figures each time, everything now and then.
  void compare(bool whole) {
    uint32_t idle = 0;
    for (const auto& [node, cached] : cached_) idle += held(cached.block) == 0 ? 1 : 0;
    ASSERT_EQ(cache_->index().size(), cached_.size());
    ASSERT_EQ(cache_->index().idle(), idle);
    ASSERT_EQ(cache_->available(), available());
    ASSERT_EQ(cache_->index().pinned(), pinned());
    if (!whole) return;
    for (uint32_t node = 1; node < ids_.size(); ++node) {
      ASSERT_EQ(cache_->index().find(ids_[node]) != PrefixIndex::k_none, cached_.count(node) != 0)
          << node;
    }
    std::vector<const KvSequence*> sequences;
    for (const Pair& pair : pairs_) {
      sequences.push_back(&pair.real);
      ASSERT_EQ(pair.real.length(), pair.length);
      ASSERT_EQ(pair.real.published(), pair.published());
      uint32_t alone = 0;
      for (const Handle& block : pair.blocks) alone += held(block) == 1 ? 1 : 0;
      ASSERT_EQ(pair.real.exclusive_blocks(), alone);
      for (uint32_t i = 0; i < pair.published(); ++i) {
        ASSERT_EQ(*content(pair.real, i), static_cast<float>(pair.blocks[i]->node));
      }
    }
    cache_->check_conservation(sequences);
  }

 private:
  /// Sequences that hold the block; the index's own handle does not count.
  uint32_t held(const Handle& block) const {
    const bool cached = block->node != 0 && cached_.count(block->node) != 0 &&
                        cached_.at(block->node).block == block;
    return static_cast<uint32_t>(block.use_count()) - (cached ? 1 : 0);
  }
  uint32_t available() const {
    std::vector<const NaiveBlock*> used;
    for (const Pair& pair : pairs_) {
      for (const Handle& block : pair.blocks) used.push_back(block.get());
    }
    std::sort(used.begin(), used.end());
    const auto end = std::unique(used.begin(), used.end());
    return total_ - static_cast<uint32_t>(end - used.begin());
  }
  float* content(const KvSequence& sequence, uint32_t i) {
    const auto block = static_cast<size_t>(sequence.table()[i]);
    return reinterpret_cast<float*>(cache_->memory() + block * k_geometry.block_bytes());
  }

  uint32_t pinned() const {
    return static_cast<uint32_t>(std::count_if(cached_.begin(), cached_.end(), [](const auto& at) {
      return at.second.pinned_until >= 0;
    }));
  }

  uint32_t pinned_by(uint64_t owner) const {
    return static_cast<uint32_t>(std::count_if(cached_.begin(), cached_.end(), [&](const auto& at) {
      return at.second.pinned_until >= 0 && owner_of(at.first) == owner;
    }));
  }

  /// The least recently used leaf that nobody holds, of those that are not pinned if there is one.
  bool evict() {
    auto oldest = cached_.end();
    for (auto at = cached_.begin(); at != cached_.end(); ++at) {
      bool leaf = true;
      for (uint32_t letter = 0; letter < k_letters; ++letter) {
        leaf = leaf && cached_.count(child_of(at->first, letter)) == 0;
      }
      if (!leaf || held(at->second.block) != 0) continue;
      const auto rank = [](const Cached& cached) {
        return std::pair(cached.pinned_until >= 0, cached.released);
      };
      if (oldest == cached_.end() || rank(at->second) < rank(oldest->second)) oldest = at;
    }
    if (oldest == cached_.end()) return false;
    cached_.erase(oldest);
    return true;
  }
  void let_go(Handle& block) {
    const uint32_t node = block->node;
    const bool last = held(block) == 1;
    block.reset();
    const auto at = cached_.find(node);
    if (last && at != cached_.end()) at->second.released = ++clock_;
  }
  /// Free blocks in the real pool; what is missing is evicted.
  void make_free(uint32_t blocks) {
    while (available() - idle_cached() < blocks) ASSERT_TRUE(evict());
  }
  uint32_t idle_cached() const {
    uint32_t idle = 0;
    for (const auto& [node, cached] : cached_) idle += held(cached.block) == 0 ? 1 : 0;
    return idle;
  }

  void append(Pair& pair, uint32_t tokens) {
    if (pair.length + tokens > k_depth_max * k_block_tokens) return;
    const bool copies =
        tokens > 0 && pair.length % k_block_tokens != 0 && pair.blocks.back().use_count() > 1;
    const auto wanted = (pair.length + tokens + k_block_tokens - 1) / k_block_tokens;
    const uint32_t needed =
        tokens == 0 ? 0 : wanted - static_cast<uint32_t>(pair.blocks.size()) + (copies ? 1 : 0);
    ASSERT_EQ(pair.real.blocks_for(tokens), needed);
    const bool fits = needed <= available();
    ASSERT_EQ(pair.real.append(tokens), fits);
    if (!fits || tokens == 0) return;
    if (copies) {
      make_free(1);  // Before the shared one is let go.
      Handle old = std::exchange(pair.blocks.back(), std::make_shared<NaiveBlock>());
      let_go(old);
    }
    while (pair.blocks.size() < wanted) {
      make_free(1);
      pair.blocks.push_back(std::make_shared<NaiveBlock>());
    }
    pair.length += tokens;
  }

  void publish(Pair& pair) {
    const uint32_t i = pair.published();
    if ((i + 1) * k_block_tokens > pair.length) return;
    const uint32_t node = child_of(pair.node(), random_.below(k_letters));
    // A fork that published this block first named it for all of its holders.
    if (pair.real.table()[i] >= 0 && cache_->index().contains(pair.real.table()[i])) return;
    for (const Pair& other : pairs_) {
      if (&other != &pair && other.blocks.size() > i && other.blocks[i] == pair.blocks[i]) return;
    }
    *content(pair.real, i) = static_cast<float>(node);
    pair.real.publish(ids_[node], owner_of(node));
    const auto twin = cached_.find(node);
    if (twin == cached_.end()) {
      pair.blocks[i]->node = node;
      cached_[node] = {pair.blocks[i], 0};
    } else {
      pair.blocks[i] = twin->second.block;
    }
  }

  void take(Pair& pair) {
    if (pair.length != pair.published() * k_block_tokens ||
        pair.length != pair.blocks.size() * k_block_tokens)
      return;
    std::vector<uint32_t> path;
    for (uint32_t node = pair.node(), depth = pair.published(); depth < k_depth_max; ++depth) {
      node = child_of(node, random_.below(k_letters));
      path.push_back(node);
    }
    std::vector<BlockId> chain;
    for (const uint32_t node : path) chain.push_back(ids_[node]);
    uint32_t cached = 0;
    while (cached < path.size() && cached_.count(path[cached]) != 0) ++cached;
    ASSERT_EQ(cache_->index().longest(chain), cached);
    uint32_t held_first = 0;
    while (held_first < cached && held(cached_[path[held_first]].block) > 0) ++held_first;
    ASSERT_EQ(cache_->held(std::span(chain).first(cached)), held_first);
    const uint32_t taken = random_.below(cached + 1);
    pair.real.take(std::span(chain).first(taken));
    for (uint32_t i = 0; i < taken; ++i) pair.blocks.push_back(cached_[path[i]].block);
    pair.length += taken * k_block_tokens;
  }

  void crop(Pair& pair, uint32_t length) {
    pair.real.crop(length);
    pair.length = length;
    while (pair.blocks.size() > (length + k_block_tokens - 1) / k_block_tokens) {
      let_go(pair.blocks.back());
      pair.blocks.pop_back();
    }
  }

  /// Each time no two ends are equal, as in a chain they would be in the order of its blocks.
  void pin(const Pair& pair) {
    if (pair.published() == 0) return;
    const uint64_t owner = owner_of(pair.blocks[0]->node);
    const int64_t until = ((now_ + 1 + random_.below(60)) << 24) + (++pins_ & 0xFFFFFF);
    for (uint32_t i = 0; i < pair.published(); ++i) {
      Cached& cached = cached_.at(pair.blocks[i]->node);
      bool expected = cached.pinned_until >= until;
      const bool follows = i == 0 || cached_.at(pair.blocks[i - 1]->node).pinned_until >= until;
      const bool has_room = pinned() < pins_max(total_) && pinned_by(owner) < own_max(total_);
      if (!expected && follows && (cached.pinned_until >= 0 || has_room)) {
        expected = true;
        cached.pinned_until = until;
      }
      ASSERT_EQ(cache_->pin(pair.real.table()[i], TimePoint(until)), expected) << i;
    }
  }

  void forget() {
    std::optional<uint64_t> owner = 1 + random_.below(k_letters);
    if (random_.chance(0.3f)) owner.reset();
    uint32_t forgotten = 0;
    uint32_t kept = 0;
    for (auto at = cached_.begin(); at != cached_.end();) {
      const bool own = !owner || owner_of(at->first) == *owner;
      const bool goes = own && held(at->second.block) == 0;
      forgotten += goes ? 1 : 0;
      kept += own && !goes ? 1 : 0;
      at = goes ? cached_.erase(at) : std::next(at);
    }
    const KvCache::Reset reset = cache_->forget(owner);
    ASSERT_EQ(reset.forgotten, forgotten);
    ASSERT_EQ(reset.held, kept);
  }

  void pass_time() {
    now_ += random_.below(10);
    cache_->end_pins(TimePoint(now_ << 24));
    std::vector<std::tuple<int64_t, int64_t, uint32_t>> over;
    for (const auto& [node, cached] : cached_) {
      if (cached.pinned_until < 0 || cached.pinned_until > now_ << 24) continue;
      over.emplace_back(cached.pinned_until, -int64_t{node}, node);  // Deep nodes are large.
    }
    std::sort(over.begin(), over.end());
    for (const auto& [until, order, node] : over) {
      Cached& cached = cached_.at(node);
      cached.pinned_until = -1;
      if (held(cached.block) == 0) cached.released = ++clock_;
    }
  }

  void fork(const Pair& pair) { pairs_.push_back({pair.real.fork(), pair.blocks, pair.length}); }

  Random random_;
  uint32_t total_ = 0;
  std::vector<BlockId> ids_;  ///< [node]
  std::unique_ptr<KvCache> cache_;
  std::list<Pair> pairs_;
  std::map<uint32_t, Cached> cached_;  ///< By node.
  uint64_t clock_ = 0;
  int64_t now_ = 0;
  int64_t pins_ = 0;
};

TEST(PrefixIndex, HoldsSharesPinsAndEvictsWhatItsNaiveTwinDoes) {
  const uint64_t seeds = 20;
  const uint64_t operations = fuzz_operations(60'000);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    Twin twin(seed);
    for (uint64_t i = 0; i < operations / seeds; ++i) {
      ASSERT_NO_FATAL_FAILURE(twin.operate()) << i;
      ASSERT_NO_FATAL_FAILURE(twin.compare(i % 64 == 0)) << i;
    }
  }
}

std::vector<BlockId> chain_of(std::initializer_list<int> names) {
  std::vector<BlockId> chain;
  for (const int name : names) chain.push_back(id_of(static_cast<uint32_t>(name)));
  return chain;
}

std::unique_ptr<KvCache> make_cache(uint32_t blocks) {
  return std::move(KvCache::create(kernels::make_ref_ops(), k_geometry, blocks)).value();
}

/// A sequence that computed and published these blocks, and went.
void leave(KvCache& cache, std::span<const BlockId> chain, uint64_t owner = 1) {
  KvSequence sequence(cache);
  const uint32_t cached = cache.index().longest(chain);
  sequence.take(chain.first(cached));
  ASSERT_TRUE(sequence.append(static_cast<uint32_t>(chain.size() - cached) * k_block_tokens));
  for (const BlockId& id : chain.subspan(cached)) sequence.publish(id, owner);
}

TEST(PrefixIndex, EvictsTheEndOfTheLeastRecentlyUsedChainFirst) {
  const auto cache = make_cache(8);
  const std::vector<BlockId> old = chain_of({1, 2, 3});
  const std::vector<BlockId> young = chain_of({1, 5});
  leave(*cache, old);
  leave(*cache, young);
  EXPECT_EQ(cache->available(), 8u);
  EXPECT_EQ(cache->evict(2), 2u);
  EXPECT_EQ(cache->index().longest(old), 1u);
  EXPECT_EQ(cache->index().longest(young), 2u);
  EXPECT_EQ(cache->evict(9), 2u);
  EXPECT_EQ(cache->index().size(), 0u);
  EXPECT_EQ(cache->index().evictions(), 4u);
}

TEST(PrefixIndex, WhatASequenceHoldsStaysHoweverShortMemoryIs) {
  const auto cache = make_cache(4);
  const std::vector<BlockId> chain = chain_of({1, 2});
  leave(*cache, chain);
  KvSequence pin(*cache);
  pin.take(chain);
  KvSequence greedy(*cache);
  EXPECT_FALSE(greedy.append(3 * k_block_tokens));
  EXPECT_TRUE(greedy.append(2 * k_block_tokens));
  EXPECT_EQ(cache->evict(9), 0u);
  EXPECT_EQ(cache->index().longest(chain), 2u);
}

TEST(PrefixIndex, WhoeverComputedTheSameBlockGivesItsOwnBack) {
  const auto cache = make_cache(4);
  const std::vector<BlockId> chain = chain_of({1});
  KvSequence first(*cache);
  KvSequence second(*cache);
  ASSERT_TRUE(first.append(k_block_tokens));
  ASSERT_TRUE(second.append(k_block_tokens));
  EXPECT_EQ(cache->available(), 2u);
  first.publish(chain[0], 1);
  second.publish(chain[0], 1);
  EXPECT_EQ(first.table()[0], second.table()[0]);
  EXPECT_EQ(cache->available(), 3u);
}

TEST(PrefixIndex, AppendingInsideAPublishedBlockCopiesItFirst) {
  const auto cache = make_cache(4);
  const std::vector<BlockId> chain = chain_of({1});
  KvSequence sequence(*cache);
  ASSERT_TRUE(sequence.append(k_block_tokens));
  sequence.publish(chain[0], 1);
  const int32_t block = sequence.table()[0];
  sequence.crop(5);
  EXPECT_EQ(sequence.published(), 0u);
  EXPECT_TRUE(sequence.shared_tail());
  ASSERT_TRUE(sequence.append(1));
  EXPECT_NE(sequence.table()[0], block);
  EXPECT_EQ(cache->index().find(chain[0]), block);
}

/// A sequence that computed, published and pinned these blocks, and went. How many pins it got.
uint32_t leave_pinned(KvCache& cache, std::span<const BlockId> chain, int64_t until,
                      uint64_t owner = 1) {
  leave(cache, chain, owner);
  KvSequence sequence(cache);
  sequence.take(chain);
  uint32_t pins = 0;
  for (const int32_t block : sequence.table()) {
    pins += cache.pin(block, TimePoint(until)) ? 1 : 0;
  }
  return pins;
}

TEST(PrefixIndex, PinnedBlocksAreEvictedLast) {
  const auto cache = make_cache(16);
  const std::vector<BlockId> pinned = chain_of({1, 2});
  const std::vector<BlockId> young = chain_of({1, 5, 6});
  EXPECT_EQ(leave_pinned(*cache, pinned, 100), 2u);
  leave(*cache, young);
  EXPECT_EQ(cache->evict(2), 2u);
  EXPECT_EQ(cache->index().longest(young), 1u);
  EXPECT_EQ(cache->index().longest(pinned), 2u);
  KvSequence running(*cache);
  EXPECT_TRUE(running.append(15 * k_block_tokens)) << "what runs wins";
  EXPECT_EQ(cache->index().longest(pinned), 1u);
  EXPECT_EQ(cache->index().pins_evicted(), 1u);
}

TEST(PrefixIndex, PinsBeyondTheirShareAreRefused) {
  const auto cache = make_cache(16);
  EXPECT_EQ(leave_pinned(*cache, chain_of({1, 2, 3, 4, 5, 6}), 100), own_max(16));
  EXPECT_EQ(leave_pinned(*cache, chain_of({7, 8, 9}), 100), 0u) << "one owner has half at most";
  EXPECT_EQ(leave_pinned(*cache, chain_of({10, 11, 12}), 100, 2), pins_max(16) - own_max(16));
  EXPECT_EQ(leave_pinned(*cache, chain_of({13}), 100, 3), 0u);
  EXPECT_EQ(cache->index().pinned(), pins_max(16));
  cache->end_pins(TimePoint(100));
  EXPECT_EQ(leave_pinned(*cache, chain_of({14}), 200, 1), 1u) << "its share is free again";
}

TEST(PrefixIndex, AResetForgetsWhatItsOwnerDoesNotHold) {
  const auto cache = make_cache(16);
  EXPECT_EQ(leave_pinned(*cache, chain_of({1, 2}), 100, 1), 2u);
  leave(*cache, chain_of({1, 2, 3}), 1);
  leave(*cache, chain_of({4, 5}), 1);
  leave(*cache, chain_of({6}), 2);
  KvSequence running(*cache);
  running.take(chain_of({4}));
  const KvCache::Reset own = cache->forget(1);
  EXPECT_EQ(own.forgotten, 4u) << "pinned ones too";
  EXPECT_EQ(own.held, 1u);
  EXPECT_EQ(cache->index().longest(chain_of({1})), 0u);
  EXPECT_EQ(cache->index().longest(chain_of({4, 5})), 1u) << "somebody holds it";
  EXPECT_EQ(cache->index().longest(chain_of({6})), 1u) << "another's";
  EXPECT_EQ(cache->index().pinned(), 0u);
  EXPECT_EQ(cache->index().evictions(), 0u) << "nobody needed the memory";
  running.reset();
  EXPECT_EQ(cache->forget(std::nullopt).forgotten, 2u);
  EXPECT_EQ(cache->index().size(), 0u);
}

TEST(PrefixIndex, APinThatEndedSparesNothing) {
  const auto cache = make_cache(16);
  leave_pinned(*cache, chain_of({1, 2}), 100);
  leave(*cache, chain_of({5}));
  cache->end_pins(TimePoint(100));
  EXPECT_EQ(cache->index().pinned(), 0u);
  leave(*cache, chain_of({6}));
  EXPECT_EQ(cache->evict(3), 3u);
  EXPECT_EQ(cache->index().longest(chain_of({6})), 1u) << "used last";
  EXPECT_EQ(cache->index().longest(chain_of({1})), 0u);
}

}  // namespace
}  // namespace outrider::model
