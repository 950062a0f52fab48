#include "kernels/cuda/kv_fragments.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/attention_items.hpp"
#include "kernels/cuda/emulate.hpp"
#include "kernels/kv_codec.hpp"
#include "kernels/test_support.hpp"

namespace outrider::kernels::cuda {
namespace {

constexpr uint32_t k_head_dim = 80;

/// The fragments of all units of a tile.
struct ReadFragments {
  static constexpr uint32_t k_threads = 32;
  KvTiles tiles;
  bool of_values;
  const std::byte* tile;
  std::vector<uint32_t>* b;  ///< [unit][lane][matrix][2]

  template <class Block>
  void operator()(Block& block) const {
    auto memory = block.template shared<std::byte>(tiles.tile_bytes);
    block.threads([&](uint32_t t) {
      for (uint32_t i = 16 * t; i < tiles.tile_bytes; i += 16 * k_threads) {
        memory.copy_async(i, tile + i);
      }
      block.end_copies();
      block.template wait_for_copies<0>();
    });
    block.barrier();
    with_half_kind(tiles.kind, [&]<KvKind kind>() {
      block.threads([&](uint32_t t) {
        for (uint32_t unit = 0; unit < k_head_dim / 16; ++unit) {
          uint32_t of_lane[2][2];
          if (of_values) {
            unit_fragments<kind, true>(tiles, memory, 0, unit, t, of_lane);
          } else {
            unit_fragments<kind, false>(tiles, memory, 0, unit, t, of_lane);
          }
          std::copy_n(&of_lane[0][0], 4, b->data() + (unit * 32 + t) * 4);
        }
      });
    });
  }
};

/// Where mma has them, by the order that the header tells.
TEST(KvFragments, AreTheTilesNumbersAsHalves) {
  Random random(3);
  for (const KvKind kind : k_kv_kinds) {
    if (!fits_halves(kind)) continue;
    for (const KvTensor tensor : {KvTensor::keys, KvTensor::values}) {
      const bool of_values = tensor == KvTensor::values;
      alignas(16) std::byte tile[kv_tile_bytes(KvKind::fp16, k_head_dim)] = {};
      for (size_t position = 0; position < 16; ++position) {
        const std::vector<float> x = kernels::testing_support::random_floats(random, k_head_dim);
        kv_store(kind, tensor, k_head_dim, position, x.data(), tile);
      }
      const KvGeometry geometry = {.layers = 1,
                                   .kv_heads = 1,
                                   .head_dim = k_head_dim,
                                   .block_tokens = 16,
                                   .k_kind = kind,
                                   .v_kind = kind};
      std::vector<uint32_t> b(k_head_dim / 16 * 32 * 4);
      const ReadFragments kernel = {kv_pool(geometry, 0, nullptr).of[of_values ? 1 : 0], of_values,
                                    tile, &b};
      emulate({.threads = 32, .shared_bytes = sizeof(tile)}, kernel, false);
      for (uint32_t i = 0; i < b.size() * 2; ++i) {
        const uint32_t unit = i / 256, lane = i / 8 % 32, matrix = i / 4 % 2, e = i % 4;
        const uint32_t column = 2 * (lane / 4) + matrix;
        const uint32_t k = k_of_slot(!kind_has_scales(kind), lane % 4, e);
        ASSERT_EQ(slot_of_k(!kind_has_scales(kind), k), e);
        const uint32_t position = of_values ? k : column, d = of_values ? column : k;
        const float number = kv_read(kind, tensor, k_head_dim, position, unit * 16 + d, tile);
        ASSERT_EQ(b[i / 2] >> (i % 2 * 16) & 0xFFFF, float_as_half(number))
            << kv_kind_name(kind) << (of_values ? " values " : " keys ") << i;
      }
    }
  }
}

TEST(KvFragments, SlotsGoRound) {
  for (uint32_t g = 0; g < 4; ++g) {
    uint32_t first = 0x00010000, second = 0x00030002;
    go_round(g, first, second);
    const uint32_t slots[4] = {first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16};
    for (uint32_t e = 0; e < 4; ++e) EXPECT_EQ(4 * g + slots[e], k_of_slot(true, g, e)) << g;
  }
}

TEST(KvFragments, HalvesThatAreNoNumbersAreFound) {
  EXPECT_EQ(odd_halves(0x7BFF0001), 0u);
  EXPECT_EQ(odd_halves(0xFC007BFF), 0x80000000u);
  EXPECT_EQ(odd_halves(0x00007E01), 0x8000u);
  EXPECT_EQ(finite_halves(0xFC00FBFF), 0x0000FBFFu);
  EXPECT_EQ(finite_halves(0x3C007C01), 0x3C000000u);
}

}  // namespace
}  // namespace outrider::kernels::cuda
