#include "model/kv_cache.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <list>

#include "base/philox.hpp"

namespace outrider::model {
namespace {

constexpr kernels::KvGeometry k_geometry = {.layers = 1,
                                            .kv_heads = 1,
                                            .head_dim = 1,
                                            .block_tokens = 16,
                                            .k_kind = kernels::KvKind::fp32,
                                            .v_kind = kernels::KvKind::fp32};

std::unique_ptr<KvCache> make_cache(uint32_t blocks) {
  auto cache = KvCache::create(kernels::make_ref_ops(), k_geometry, blocks);
  return std::move(cache).value();
}

/// With one head of one element, a block is 16 keys, then 16 values.
float* key_at(KvCache& cache, const KvSequence& sequence, uint32_t position) {
  const auto block = static_cast<size_t>(sequence.table()[position / 16]);
  return reinterpret_cast<float*>(cache.memory() + block * k_geometry.block_bytes()) +
         position % 16;
}

TEST(KvCache, RefusesABlockSizeThatIsNoMultipleOfSixteen) {
  kernels::KvGeometry odd = k_geometry;
  odd.block_tokens = 24;
  const auto cache = KvCache::create(kernels::make_ref_ops(), odd, 4);
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.error().field, "block_tokens");
}

TEST(KvCache, AppendTakesWholeBlocksOrChangesNothing) {
  const auto cache = make_cache(2);
  KvSequence sequence(*cache);
  ASSERT_TRUE(sequence.append(17));
  EXPECT_EQ(sequence.table().size(), 2u);
  EXPECT_EQ(sequence.blocks_for(15), 0u);
  EXPECT_FALSE(sequence.append(16));
  EXPECT_EQ(sequence.length(), 17u);
  sequence.crop(16);
  EXPECT_EQ(cache->pool().free(), 1u);
}

TEST(KvCache, WhoeverAppendsFirstToASharedBlockCopiesIt) {
  const auto cache = make_cache(4);
  KvSequence parent(*cache);
  ASSERT_TRUE(parent.append(20));
  *key_at(*cache, parent, 19) = 7;
  KvSequence child = parent.fork();
  EXPECT_EQ(cache->pool().used(), 2u);
  EXPECT_TRUE(parent.shared_tail());
  ASSERT_TRUE(child.append(1));
  EXPECT_EQ(cache->pool().used(), 3u);
  EXPECT_EQ(child.table()[0], parent.table()[0]);
  EXPECT_NE(child.table()[1], parent.table()[1]);
  EXPECT_EQ(*key_at(*cache, child, 19), 7);
  EXPECT_FALSE(parent.shared_tail());
  EXPECT_EQ(parent.blocks_for(1), 0u);
}

TEST(KvCache, NewBlocksHoldTheNumbersOfAMeasurementUntilItIsOver) {
  for (const kernels::KvKind kind : {kernels::KvKind::fp32, kernels::KvKind::nf4}) {
    kernels::KvGeometry geometry = k_geometry;
    geometry.layers = 2;
    geometry.head_dim = 32;
    geometry.k_kind = geometry.v_kind = kind;
    const auto cache = KvCache::create(kernels::make_ref_ops(), geometry, 2).value();
    const auto bytes_of_new = [&] {
      KvSequence sequence(*cache);
      EXPECT_TRUE(sequence.append(1));
      const auto at = static_cast<size_t>(sequence.table()[0]) * geometry.block_bytes();
      return std::vector<std::byte>(cache->memory() + at,
                                    cache->memory() + at + geometry.block_bytes());
    };
    const std::vector<std::byte> zeros(geometry.block_bytes());
    EXPECT_EQ(bytes_of_new(), zeros);
    std::vector<float> numbers(16 * 32);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 3;
    cache->fill_new_blocks(numbers);
    const std::vector<std::byte> filled = bytes_of_new();
    const size_t layer = geometry.layer_bytes();
    EXPECT_NE(filled, zeros);
    EXPECT_EQ(std::memcmp(&filled[0], &filled[layer], layer), 0) << "each layer has them";
    cache->fill_new_blocks({});
    EXPECT_EQ(bytes_of_new(), zeros);
  }
}

TEST(KvCache, AReusedBlockHoldsNothingOfItsLastOwner) {
  const auto cache = make_cache(1);
  {
    KvSequence first(*cache);
    ASSERT_TRUE(first.append(3));
    *key_at(*cache, first, 2) = std::numeric_limits<float>::infinity();
  }
  KvSequence second(*cache);
  ASSERT_TRUE(second.append(1));
  EXPECT_EQ(*key_at(*cache, second, 2), 0);
}

struct Pair {
  KvSequence real;
  std::vector<float> naive;
};

void append(KvCache& cache, Pair& pair, Random& random) {
  const uint32_t count = random.below(40);
  const uint32_t needed = pair.real.blocks_for(count);
  const uint32_t free_before = cache.pool().free();
  const bool fits = pair.real.append(count);
  ASSERT_EQ(fits, needed <= free_before);
  if (!fits) return;
  ASSERT_EQ(free_before - cache.pool().free(), needed);
  for (uint32_t i = 0; i < count; ++i) {
    pair.naive.push_back(static_cast<float>(random.below(1 << 20)));
    *key_at(cache, pair.real, static_cast<uint32_t>(pair.naive.size() - 1)) = pair.naive.back();
  }
}

void check(KvCache& cache, const std::list<Pair>& pairs) {
  std::vector<const KvSequence*> sequences;
  for (const Pair& pair : pairs) {
    sequences.push_back(&pair.real);
    ASSERT_EQ(pair.real.length(), pair.naive.size());
    for (uint32_t i = 0; i < pair.naive.size(); ++i) {
      ASSERT_EQ(*key_at(cache, pair.real, i), pair.naive[i]) << i;
    }
  }
  cache.check_conservation(sequences);
}

TEST(KvCache, SequencesKeepTheirContentUnderRandomAppendForkCropAndReset) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto cache = make_cache(8 + random.below(24));
    std::list<Pair> pairs;
    for (int i = 0; i < 500; ++i) {
      if (pairs.empty() || (pairs.size() < 8 && random.chance(0.2f))) {
        pairs.push_back({KvSequence(*cache), {}});
      }
      auto at = pairs.begin();
      std::advance(at, random.below(static_cast<uint32_t>(pairs.size())));
      switch (random.below(5)) {
        case 0:
        case 1:
          append(*cache, *at, random);
          break;
        case 2:
          if (pairs.size() < 12) pairs.push_back({at->real.fork(), at->naive});
          break;
        case 3:
          at->naive.resize(random.below(static_cast<uint32_t>(at->naive.size()) + 1));
          at->real.crop(static_cast<uint32_t>(at->naive.size()));
          break;
        default:
          if (random.chance(0.5f)) pairs.erase(at);
      }
      check(*cache, pairs);
    }
    pairs.clear();
    EXPECT_EQ(cache->pool().used(), 0u);
  }
}

}  // namespace
}  // namespace outrider::model
