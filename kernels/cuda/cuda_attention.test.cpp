#include <gtest/gtest.h>

#include <limits>

#include "kernels/attention_scene.test.hpp"
#include "kernels/cuda/attention_items.hpp"
#include "kernels/cuda/host_ops.test.hpp"

namespace outrider::kernels::cuda {
namespace {

using namespace kernels::testing_support;
using Scene = AttentionScene;
using Shape = kernels::testing_support::AttentionShape;

constexpr uint64_t k_cuda_attention_seed = 0xA77E;
constexpr const auto& k_shapes = k_attention_shapes;

class AttentionOn : public cuda::testing_support::EachDevice {};

Scene scene_of(const Shape& s, std::vector<uint32_t> lengths) {
  return Scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
               s.kv_heads * s.group, std::move(lengths), k_cuda_attention_seed + s.head_dim);
}

/// Values are averages of normal numbers; scores carry the rounding of head_dim products. On tensor
/// cores queries, coded keys, weights and coded values are rounded to half precision, each by a
/// share u = 2^-11 at most, u / sqrt(3) as a rule. A score, of standard deviation 2 here, is off by
/// 2 u sqrt(2 / 3) of that, and a result, which is as far off as the scores where one weight is
/// large, by five times as much: one in a million elements is further off than that.
Worst compare(const std::vector<float>& got, const std::vector<float>& expected,
              const KvGeometry& geometry) {
  const double head_dim = geometry.head_dim;
  const double of_floats = 0x1p-24 * 60.0 * std::sqrt(head_dim);
  const double of_halves = attention_on_tensor_cores(geometry) ? 8 * 0x1p-11 : 0;
  Worst worst;
  for (size_t i = 0; i < got.size(); ++i) {
    worst.see(i, got[i], expected[i], of_floats + of_halves);
  }
  return worst;
}

TEST_P(AttentionOn, ResultsAreCloseToTheReference) {
  const auto ref = make_ref_ops();
  for (const Shape& s : k_shapes) {
    Scene scene = scene_of(s, {1, 37, 300, 530});
    scene.append_all(*ref);
    const std::vector<Scene::Piece> pieces = {{0, 0, 1}, {1, 0, 37}, {2, 280, 20}, {3, 529, 1}};
    const Worst worst =
        compare(scene.attend(*ops_, pieces), scene.attend(*ref, pieces), scene.geometry);
    EXPECT_LE(worst.share, 1.0) << "head_dim " << s.head_dim << " group " << s.group << ' '
                                << worst.text();
  }
}

/// Decoding alone spreads chunks over blocks, a prompt does not.
TEST_P(AttentionOn, BitsDoNotDependOnHowWorkIsSplit) {
  const auto other_ops = other();
  for (const Shape& s : k_shapes) {
    Scene scene = scene_of(s, {60, 530});
    scene.append_all(*ops_);
    const std::vector<Scene::Piece> pieces = {{0, 40, 20}, {1, 529, 1}, {1, 517, 12}};
    const std::vector<float> together = scene.attend(*ops_, pieces);
    if (other_ops != nullptr) {
      EXPECT_TRUE(same_bits(scene.attend(*other_ops, pieces), together)) << s.head_dim;
    }
    const std::vector<float> alone = scene.attend(*ops_, {pieces[1]});
    EXPECT_EQ(
        std::memcmp(alone.data(), &together[20 * scene.q_row()], alone.size() * sizeof(float)), 0)
        << s.head_dim;
  }
}

/// A prompt in one segment, row by row, and in random chunks beside batch mates.
TEST_P(AttentionOn, BitsOfARowDependOnItsOwnPrefixOnly) {
  const std::pair<KvKind, KvKind> kinds[] = {{KvKind::fp16, KvKind::fp16},
                                             {KvKind::q8_0, KvKind::nf4}};
  for (const auto& [k, v] : kinds) {
    Scene scene(scene_geometry(2, 64, 16, k, v), 6, {400, 90, 1, 280}, k_cuda_attention_seed);
    scene.append_all(*ops_);
    const std::vector<float> whole = scene.attend(*ops_, {{0, 0, 400}});
    const size_t row = scene.q_row();
    for (uint32_t i = 0; i < 400; i += 29) {
      const std::vector<float> alone = scene.attend(*ops_, {{0, i, 1}});
      ASSERT_EQ(std::memcmp(alone.data(), &whole[i * row], row * sizeof(float)), 0) << i;
    }
    for (uint32_t begin = 0; begin < 400;) {
      const uint32_t rows = std::min(1 + scene.random.below(90), 400 - begin);
      const uint32_t before = 1 + scene.random.below(80);
      const std::vector<float> mixed =
          scene.attend(*ops_, {{1, 10, before}, {0, begin, rows}, {3, 279, 1}, {2, 0, 1}});
      ASSERT_EQ(std::memcmp(&mixed[before * row], &whole[begin * row], rows * row * sizeof(float)),
                0)
          << "rows " << begin << " + " << rows << " seed " << k_cuda_attention_seed;
      begin += rows;
    }
  }
}

TEST_P(AttentionOn, RowsWithAWindowAreCloseToTheReferenceAndAlone) {
  const auto ref = make_ref_ops();
  for (const Shape& s : {k_shapes[1], k_shapes[12]}) {
    Scene scene = scene_of(s, {1, 37, 300, 530});
    scene.append_all(*ref);
    const std::vector<Scene::Piece> pieces = {{0, 0, 1}, {1, 0, 37}, {2, 275, 25}, {3, 511, 1}};
    for (const uint32_t window : {1, 15, 16, 17, 127, 128, 129, 300, 1000}) {
      scene.geometry.window = window;
      const std::vector<float> got = scene.attend(*ops_, pieces);
      const Worst worst = compare(got, scene.attend(*ref, pieces), scene.geometry);
      EXPECT_LE(worst.share, 1.0) << "window " << window << ' ' << worst.text();
      const std::vector<float> alone = scene.attend(*ops_, {{2, 287, 1}});
      EXPECT_EQ(std::memcmp(alone.data(), &got[(1 + 37 + 12) * scene.q_row()],
                            alone.size() * sizeof(float)),
                0)
          << window;
    }
  }
}

/// A key and a value. A number may hide what the other does: each also stands alone.
constexpr float k_nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::pair<float, float> k_odd_pairs[] = {
    {k_nan, HUGE_VALF}, {k_nan, 1.0f}, {1.0f, k_nan}, {1.0f, HUGE_VALF}, {HUGE_VALF, HUGE_VALF}};

TEST_P(AttentionOn, WhatIsNoNumberShowsInRowsThatAttendToItOnly) {
  for (const KvKind kind : k_kv_kinds) {
    for (const uint32_t window : {0u, 40u}) {
      Scene scene(scene_geometry(1, 64, 16, kind, kind), 3, {270}, k_cuda_attention_seed);
      scene.geometry.window = window;
      scene.append_all(*ops_);
      const std::vector<Scene::Piece> pieces = {{0, 260, 10}};
      const std::vector<float> expected = scene.attend(*ops_, pieces);
      for (const auto& [key, value] : k_odd_pairs) {
        scene.put_odd(265 - window, key, value);
        scene.append_all(*ops_);
        const std::vector<float> got = scene.attend(*ops_, pieces);
        for (size_t i = 0; i < got.size(); ++i) {
          const bool sees = (260 + i / scene.q_row() >= 265) == (window == 0);
          ASSERT_TRUE(sees || same_bits({got[i]}, {expected[i]}))
              << kv_kind_name(kind) << " window " << window << " key " << key << " value " << value;
          ASSERT_TRUE(!sees || kind == KvKind::fp8 || !std::isfinite(got[i])) << i;
        }
      }
    }
  }
}

/// One row, what verification has, and a prompt: blocks of 1, 2 and 4 tiles of queries.
TEST_P(AttentionOn, BitsDoNotDependOnTheTilesOfABlock) {
  const std::pair<KvKind, KvKind> kinds[] = {
      {KvKind::fp16, KvKind::fp16}, {KvKind::fp8, KvKind::q4_0}, {KvKind::q8_0, KvKind::fp8},
      {KvKind::q4_0, KvKind::q3},   {KvKind::nf4, KvKind::q8_0}, {KvKind::q3, KvKind::nf4}};
  const auto ref = make_ref_ops();
  for (const auto& [k, v] : kinds) {
    for (const uint32_t window : {0u, 140u}) {
      Scene scene(scene_geometry(1, 36, 32, k, v), 4, {300, 40}, k_cuda_attention_seed);
      scene.geometry.window = window;
      scene.append_all(*ref);
      const size_t row = scene.q_row();
      const std::vector<Scene::Piece> pieces = {{0, 250, 50}, {1, 39, 1}};
      const std::vector<float> prompt = scene.attend(*ops_, pieces);
      const Worst worst = compare(prompt, scene.attend(*ref, pieces), scene.geometry);
      EXPECT_LE(worst.share, 1.0) << kv_kind_name(k) << ' ' << kv_kind_name(v) << worst.text();
      for (const uint32_t rows : {1u, 2u, 5u, 8u}) {
        const std::vector<float> some = scene.attend(*ops_, {{1, 39, 1}, {0, 254, rows}});
        ASSERT_EQ(std::memcmp(&some[row], &prompt[4 * row], rows * row * sizeof(float)), 0)
            << kv_kind_name(k) << ' ' << kv_kind_name(v) << " window " << window << " rows "
            << rows;
      }
    }
  }
}

TEST_P(AttentionOn, AQueryThatIsNoNumberIsAlone) {
  Scene scene(scene_geometry(2, 64, 16, KvKind::fp16, KvKind::fp16), 4, {200}, 7);
  scene.append_all(*ops_);
  const std::vector<Scene::Piece> pieces = {{0, 190, 10}};
  const std::vector<float> expected = scene.attend(*ops_, pieces);
  for (const float odd : {k_nan, HUGE_VALF}) {
    scene.queries[0][193 * scene.q_row() + 64 + 5] = odd;  // row 193, head 1
    const std::vector<float> got = scene.attend(*ops_, pieces);
    for (size_t i = 0; i < got.size(); ++i) {
      const bool own = i / 64 == 3 * 4 + 1;
      ASSERT_TRUE(own ? std::isnan(got[i]) : same_bits({got[i]}, {expected[i]})) << i;
    }
  }
}

/// In rows that see a whole chunk mma meets infinities itself, else they are added by hand; weights
/// that are too small for a half make NaN of them either way.
TEST_P(AttentionOn, InfinitiesAreTheSameInAnyCompany) {
  for (const KvKind kind : {KvKind::fp16, KvKind::q8_0}) {
    Scene scene(scene_geometry(1, 64, 16, KvKind::fp16, kind), 3, {140}, 8);
    for (size_t i = 120 * scene.q_row(); i < scene.queries[0].size(); ++i) {
      scene.queries[0][i] *= 16;
    }
    scene.put_odd(20, scene.keys[0][20 * 64], HUGE_VALF);
    scene.append_all(*ops_);
    const std::vector<float> together = scene.attend(*ops_, {{0, 100, 40}});
    size_t infinite = 0, none = 0;
    for (uint32_t i = 0; i < 40; ++i) {
      const std::vector<float> alone = scene.attend(*ops_, {{0, 100 + i, 1}});
      for (size_t j = 0; j < alone.size(); ++j) {
        const float other = together[i * alone.size() + j];
        ASSERT_TRUE(std::isnan(other) ? std::isnan(alone[j]) : alone[j] == other) << i << ' ' << j;
        infinite += std::isinf(other) ? 1 : 0;
        none += std::isnan(other) ? 1 : 0;
      }
    }
    EXPECT_TRUE(none > 0 && (infinite > 0 || kind == KvKind::q8_0)) << infinite << ' ' << none;
  }
}

/// What lies behind a row's own position, and scales that are no numbers there, never shows.
TEST_P(AttentionOn, StaleBytesBehindARowDoNotShow) {
  for (const KvKind kind : k_kv_kinds) {
    std::vector<std::vector<float>> results;
    for (const int byte : {0, 0xFF}) {
      Scene scene(scene_geometry(1, 80, 32, kind, kind), 3, {70, 333}, k_cuda_attention_seed);
      std::memset(scene.pool.data(), byte, scene.pool.size());
      scene.append_all(*ops_);
      results.push_back(scene.attend(*ops_, {{0, 65, 3}, {1, 310, 23}}));
    }
    EXPECT_TRUE(same_bits(results[0], results[1])) << kv_kind_name(kind);
  }
}

TEST_P(AttentionOn, AppendInPiecesStoresTheBytesOfTheReference) {
  const auto ref = make_ref_ops();
  for (const Shape& s : k_shapes) {
    Scene scene = scene_of(s, {150, 33});
    scene.keys[0][5] = 1e30f;  // too large for a half, or a scale in half precision
    scene.values[0][7] = k_nan;
    scene.values[0][scene.kv_row()] = -HUGE_VALF;
    const std::vector<std::byte> before = scene.pool;
    scene.append_all(*ref);
    const std::vector<std::byte> expected = scene.pool;
    scene.pool = before;
    const size_t row = scene.kv_row();
    std::vector<float> k = scene.keys[1], v = scene.values[1];
    k.insert(k.end(), scene.keys[0].begin(), scene.keys[0].begin() + static_cast<long>(97 * row));
    v.insert(v.end(), scene.values[0].begin(),
             scene.values[0].begin() + static_cast<long>(97 * row));
    const Segment first[] = {{scene.tables[1].data(), 0, 33, 0},
                             {scene.tables[0].data(), 33, 97, 0}};
    ops_->kv_append(scene.geometry, 1, first, k.data(), v.data(), scene.pool.data());
    const Segment second = {scene.tables[0].data(), 0, 53, 97};
    ops_->kv_append(scene.geometry, 1, {&second, 1}, &scene.keys[0][97 * row],
                    &scene.values[0][97 * row], scene.pool.data());
    ASSERT_EQ(scene.pool, expected)
        << kv_kind_name(s.k) << ' ' << kv_kind_name(s.v) << " head_dim " << s.head_dim;
  }
}

TEST_P(AttentionOn, BlocksMoveAsTheyAre) {
  const auto ref = make_ref_ops();
  Scene scene(scene_geometry(2, 80, 32, KvKind::q8_0, KvKind::fp16), 2, {100},
              k_cuda_attention_seed);
  const KvGeometry& g = scene.geometry;
  const size_t bytes = g.block_bytes();
  std::vector<std::byte> k[2], v[2];
  for (size_t i = 0; i < 2; ++i) {
    k[i].resize(g.k_bytes());
    v[i].resize(g.v_bytes());
    Ops& ops = i == 0 ? *ops_ : *ref;
    ops.read_block(g, 2, scene.pool.data(), k[i].data(), v[i].data());
  }
  EXPECT_EQ(k[0], k[1]);
  EXPECT_EQ(v[0], v[1]);
  const std::vector<std::byte> before = scene.pool;
  ops_->write_block(g, 1, k[0].data(), v[0].data(), scene.pool.data());
  ops_->copy_block(g, 1, 0, scene.pool.data());
  const std::byte* const block = before.data() + 2 * bytes;
  for (const size_t i : {0, 1, 2}) {
    EXPECT_EQ(std::memcmp(scene.pool.data() + i * bytes, block, bytes), 0) << i;
  }
  EXPECT_EQ(std::memcmp(&scene.pool[3 * bytes], &before[3 * bytes], before.size() - 3 * bytes), 0);
}

OUTRIDER_EACH_DEVICE(AttentionOn);

}  // namespace
}  // namespace outrider::kernels::cuda
