#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/attention_scene.test.hpp"

namespace outrider::kernels {
namespace {

using namespace testing_support;

constexpr uint64_t k_attention_seed = 0xA77E;

using Scene = AttentionScene;
using Shape = AttentionShape;
constexpr const auto& k_shapes = k_attention_shapes;

TEST(AttentionTest, ResultsAreCloseToTheReferenceOnEachInstructionSet) {
  const auto ref = make_ref_ops();
  for (const Shape& s : k_shapes) {
    Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
                s.kv_heads * s.group, {1, 37, 300, 530}, k_attention_seed + s.head_dim);
    scene.append_all(*ref);
    const std::vector<Scene::Piece> pieces = {{0, 0, 1}, {1, 0, 37}, {2, 250, 50}, {3, 529, 1}};
    const std::vector<float> expected = scene.attend(*ref, pieces);
    // Values are averages of normal numbers; scores carry the rounding of head_dim products.
    // Products with codes round queries and weights to 16 bits.
    const bool codes = kv_kind_info(s.k).has_scales || kv_kind_info(s.v).has_scales;
    const double tolerance =
        codes ? 0x1p-11 : 0x1p-24 * 60.0 * std::sqrt(static_cast<double>(s.head_dim));
    for (const Isa isa : available_isas()) {
      const std::vector<float> got = scene.attend(*make_cpu_ops(2, isa), pieces);
      Worst worst;
      for (size_t i = 0; i < got.size(); ++i) worst.see(i, got[i], expected[i], tolerance);
      EXPECT_LE(worst.share, 1.0) << isa_name(isa) << " head_dim " << s.head_dim << " group "
                                  << s.group << ' ' << worst.text();
    }
  }
}

TEST(AttentionTest, BitsDependNeitherOnThreadsNorOnTheInstructionSet) {
  const auto backends = cpu_backends();
  for (const Shape& s : k_shapes) {
    Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
                s.kv_heads * s.group, {60, 530}, k_attention_seed);
    scene.append_all(*backends.front());
    const std::vector<Scene::Piece> pieces = {{0, 40, 20}, {1, 529, 1}};
    const std::vector<float> expected = scene.attend(*backends.front(), pieces);
    for (const auto& ops : backends) {
      EXPECT_TRUE(same_bits(scene.attend(*ops, pieces), expected)) << ops->description();
    }
  }
}

/// A prompt in one segment, row by row, and in random chunks beside random batch mates.
void expect_rows_depend_on_their_prefix_only(Isa isa, KvKind k, KvKind v) {
  const auto ops = make_cpu_ops(2, isa);
  Scene scene(scene_geometry(2, 64, 16, k, v), 6, {600, 90, 1, 280}, k_attention_seed);
  scene.append_all(*ops);
  const std::vector<float> whole = scene.attend(*ops, {{0, 0, 600}});
  const size_t row = scene.q_row();
  for (uint32_t i = 0; i < 600; i += i % 16 == 15 ? 1 : 5) {
    const std::vector<float> alone = scene.attend(*ops, {{0, i, 1}});
    ASSERT_EQ(std::memcmp(alone.data(), &whole[i * row], row * sizeof(float)), 0) << i;
  }
  for (uint32_t begin = 0; begin < 600;) {
    const uint32_t rows = std::min(1 + scene.random.below(90), 600 - begin);
    const std::vector<float> mixed = scene.attend(
        *ops, {{1, 10, 1 + scene.random.below(80)}, {0, begin, rows}, {3, 279, 1}, {2, 0, 1}});
    const auto at = std::search(mixed.begin(), mixed.end(), &whole[begin * row],
                                &whole[begin * row] + rows * row);
    ASSERT_NE(at, mixed.end()) << "rows " << begin << " + " << rows << " seed " << k_attention_seed;
    begin += rows;
  }
}
TEST(AttentionTest, BitsOfARowDependOnItsOwnPrefixOnly) {
  for (const Isa isa : available_isas()) {
    if (isa == Isa::portable) continue;
    expect_rows_depend_on_their_prefix_only(isa, KvKind::fp16, KvKind::fp16);
    expect_rows_depend_on_their_prefix_only(isa, KvKind::q8_0, KvKind::nf4);
  }
}

/// Batch mates whose tables begin with the same blocks: their reads are shared, their bits are not.
TEST(AttentionTest, RowsThatShareBlocksGetTheBitsThatTheyGetAlone) {
  for (const Shape& s : k_shapes) {
    if (s.head_dim > 300) continue;
    Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
                s.kv_heads * s.group, {560, 530, 600, 300, 270}, k_attention_seed);
    const auto backends = cpu_backends();
    scene.append_all(*backends.front());
    const auto share = [&](size_t from, size_t to, size_t tokens) {
      std::copy_n(scene.tables[from].begin(), tokens / s.block_tokens, scene.tables[to].begin());
    };
    share(0, 1, 512);
    share(0, 2, 512);
    share(0, 3, 256);
    const std::vector<Scene::Piece> pieces = {{3, 299, 1}, {0, 550, 3}, {4, 269, 1},
                                              {2, 599, 1}, {1, 520, 2}, {2, 530, 24}};
    for (const auto& ops : backends) {
      const bool is_slow = ops->description().find("portable") != std::string_view::npos;
      if (is_slow && scene.q_row() > 200) continue;
      std::vector<float> alone;
      for (const Scene::Piece& piece : pieces) {
        const std::vector<float> one = scene.attend(*ops, {piece});
        alone.insert(alone.end(), one.begin(), one.end());
      }
      EXPECT_TRUE(same_bits(scene.attend(*ops, pieces), alone))
          << ops->description() << " head_dim " << s.head_dim << " block " << s.block_tokens;
    }
  }
}

/// Around the borders of tiles and chunks, and longer than any sequence here.
constexpr uint32_t k_windows[] = {1, 15, 16, 17, 239, 255, 256, 257, 300, 512, 1000};

TEST(AttentionTest, RowsWithAWindowAreCloseToTheReferenceOnEachInstructionSet) {
  const auto ref = make_ref_ops();
  for (const Shape& s : {k_shapes[1], k_shapes[12]}) {
    Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
                s.kv_heads * s.group, {1, 37, 300, 530}, k_attention_seed);
    scene.append_all(*ref);
    const std::vector<Scene::Piece> pieces = {{0, 0, 1}, {1, 0, 37}, {2, 235, 65}, {3, 511, 1}};
    const double tolerance = kv_kind_info(s.k).has_scales ? 0x1p-11 : 0x1p-24 * 480.0;
    for (const uint32_t window : {1, 17, 239, 256, 257, 1000}) {
      scene.geometry.window = window;
      const std::vector<float> expected = scene.attend(*ref, pieces);
      for (const Isa isa : available_isas()) {
        if (isa == Isa::portable && window != 17) continue;
        const std::vector<float> got = scene.attend(*make_cpu_ops(2, isa), pieces);
        Worst worst;
        for (size_t i = 0; i < got.size(); ++i) worst.see(i, got[i], expected[i], tolerance);
        EXPECT_LE(worst.share, 1.0) << isa_name(isa) << " window " << window << ' ' << worst.text();
      }
    }
  }
}

/// In whole prompts, random chunks and beside mates that share blocks: whatever the tiles and
/// chunks are that its unit reads, a row gets the bits that it gets alone.
void expect_rows_depend_on_their_window_only(const Shape& s) {
  Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
              s.kv_heads * s.group, {820, 800, 90, 790}, k_attention_seed);
  const auto backends = cpu_backends();
  const auto fast = make_cpu_ops(2, available_isas().back());
  scene.append_all(*fast);
  std::copy_n(scene.tables[0].begin(), 48, scene.tables[1].begin());
  std::copy_n(scene.tables[0].begin(), 32, scene.tables[3].begin());
  for (const uint32_t window : k_windows) {
    scene.geometry.window = window;
    std::vector<Scene::Piece> pieces = {{1, 799, 1}, {0, 500, 300}, {2, 20, 70}, {3, 786, 3},
                                        {0, 815, 5}, {0, 805, 2},   {1, 770, 9}};
    std::vector<float> alone;
    for (const Scene::Piece& p : pieces) {
      for (uint32_t row = 0; row < p.rows; ++row) {
        const auto one = scene.attend(*fast, {{p.sequence, p.first_position + row, 1}});
        alone.insert(alone.end(), one.begin(), one.end());
      }
    }
    for (const auto& ops : backends) {
      const bool is_slow = ops->description().find("portable") != std::string_view::npos;
      if (is_slow && window != 17) continue;
      EXPECT_TRUE(same_bits(scene.attend(*ops, pieces), alone))
          << ops->description() << " window " << window << " seed " << k_attention_seed;
    }
  }
}
TEST(AttentionTest, BitsOfARowWithAWindowDependOnItsOwnWindowOnly) {
  for (const Shape& s : {k_shapes[1], k_shapes[12]}) expect_rows_depend_on_their_window_only(s);
}

TEST(AttentionTest, AWindowAsLongAsTheSequenceGivesTheBitsOfNone) {
  Scene scene(scene_geometry(2, 64, 16, KvKind::fp16, KvKind::fp16), 6, {600}, k_attention_seed);
  const auto ops = make_cpu_ops(2, available_isas().back());
  scene.append_all(*ops);
  const std::vector<Scene::Piece> all = {{0, 0, 600}};
  const std::vector<float> whole = scene.attend(*ops, all);
  scene.geometry.window = 600;
  EXPECT_TRUE(same_bits(scene.attend(*ops, all), whole));
  scene.geometry.window = 599;
  const std::vector<float> shorter = scene.attend(*ops, all);
  const auto last = static_cast<long>(599 * scene.q_row());
  EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + last, shorter.begin()));
  EXPECT_FALSE(std::equal(whole.begin() + last, whole.end(), shorter.begin() + last));
}

TEST(AttentionTest, WhatLiesBeforeAWindowDoesNotShow) {
  const auto ops = make_cpu_ops(2, available_isas().back());
  Scene scene(scene_geometry(1, 64, 16, KvKind::fp16, KvKind::q4_0), 3, {570}, k_attention_seed);
  scene.geometry.window = 40;
  scene.append_all(*ops);
  const std::vector<Scene::Piece> row = {{0, 569, 1}};
  const std::vector<float> expected = scene.attend(*ops, row);
  const auto spoil = [&](size_t position) {
    for (size_t d = 0; d < scene.kv_row(); ++d) {
      scene.keys[0][position * scene.kv_row() + d] *= -7;
      scene.values[0][position * scene.kv_row() + d] += 9;
    }
  };
  for (size_t position = 0; position < 530; ++position) spoil(position);
  scene.append_all(*ops);
  EXPECT_TRUE(same_bits(scene.attend(*ops, row), expected));
  spoil(530);
  scene.append_all(*ops);
  EXPECT_FALSE(same_bits(scene.attend(*ops, row), expected));
}

/// A key and a value. A number may hide what the other does: each also stands alone.
constexpr float k_nan = std::numeric_limits<float>::quiet_NaN();
constexpr std::pair<float, float> k_odd_pairs[] = {
    {k_nan, HUGE_VALF}, {k_nan, 1.0f}, {1.0f, k_nan}, {1.0f, HUGE_VALF}, {HUGE_VALF, HUGE_VALF}};

/// Behind some rows of a unit, and before the window of others: only those that attend to it see
/// it.
TEST(AttentionTest, WhatIsNoNumberShowsInRowsThatAttendToItOnly) {
  for (const KvKind kind : k_kv_kinds) {
    for (const Isa isa : available_isas()) {
      const auto ops = make_cpu_ops(1, isa);
      for (const uint32_t window : {0u, 40u}) {
        Scene scene(scene_geometry(1, 64, 16, kind, kind), 3, {570}, k_attention_seed);
        scene.geometry.window = window;
        scene.append_all(*ops);
        const std::vector<Scene::Piece> pieces = {{0, 560, 10}, {0, 564, 2}};
        const std::vector<float> expected = scene.attend(*ops, pieces);
        for (const auto& [key, value] : k_odd_pairs) {
          scene.put_odd(565 - window, key, value);
          scene.append_all(*ops);
          const std::vector<float> got = scene.attend(*ops, pieces);
          for (size_t i = 0; i < got.size(); ++i) {
            const size_t row = i / scene.q_row();
            const size_t position = row < 10 ? 560 + row : 554 + row;
            const bool sees = (position >= 565) == (window == 0);
            ASSERT_TRUE(sees || same_bits({got[i]}, {expected[i]}))
                << kv_kind_name(kind) << ' ' << isa_name(isa) << " window " << window
                << " position " << position << " key " << key << " value " << value << ": "
                << got[i] << " for " << expected[i];
            ASSERT_TRUE(!sees || kind == KvKind::fp8 || !std::isfinite(got[i])) << position;
          }
        }
      }
    }
  }
}

/// What lies behind a row's own position, and in blocks that are not its own, never shows.
TEST(AttentionTest, StaleNumbersBehindARowDoNotShow) {
  const auto ops = make_cpu_ops(2, available_isas().back());
  std::vector<std::vector<float>> results;
  for (int turn = 0; turn < 2; ++turn) {
    Scene scene(scene_geometry(1, 64, 32, KvKind::fp16, KvKind::fp32), 3, {70, 333},
                k_attention_seed);
    for (int i = 0; i < turn; ++i) scene.fill_with_garbage();
    scene.append_all(*ops);
    results.push_back(scene.attend(*ops, {{0, 65, 5}, {1, 300, 33}}));
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

/// Nor do stale scales that are no numbers.
TEST(AttentionTest, StaleScalesBehindARowDoNotShow) {
  for (const KvKind kind : {KvKind::q8_0, KvKind::q4_0, KvKind::nf4, KvKind::q3}) {
    for (const Isa isa : available_isas()) {
      const auto ops = make_cpu_ops(2, isa);
      std::vector<std::vector<float>> results;
      for (const int byte : {0, 0xFF}) {
        Scene scene(scene_geometry(1, 80, 32, kind, kind), 3, {70, 333}, k_attention_seed);
        std::memset(scene.pool.data(), byte, scene.pool.size());
        scene.append_all(*ops);
        results.push_back(scene.attend(*ops, {{0, 65, 3}, {1, 300, 33}}));
      }
      EXPECT_TRUE(same_bits(results[0], results[1])) << kv_kind_name(kind) << isa_name(isa);
    }
  }
}

/// 256 positions with the largest codes of one sign, weighed by the largest codes.
TEST(AttentionTest, SumsOfTheLargestCodesFit) {
  for (const KvKind kind : {KvKind::q8_0, KvKind::q4_0, KvKind::nf4, KvKind::q3}) {
    for (const float sign : {1.0f, -1.0f}) {
      for (const Isa isa : available_isas()) {
        const auto ops = make_cpu_ops(1, isa);
        Scene scene(scene_geometry(1, 64, 16, kind, kind), 1, {256}, k_attention_seed);
        for (auto* numbers : {&scene.keys[0], &scene.values[0]}) {
          std::fill(numbers->begin(), numbers->end(), sign * 4.0f);
        }
        std::fill(scene.queries[0].begin(), scene.queries[0].end(), 9.0f);
        scene.append_all(*ops);
        for (const float value : scene.attend(*ops, {{0, 255, 1}})) {
          ASSERT_NEAR(value, sign * 4.0f, kind == KvKind::q3 ? 0.6f : 0.002f)
              << kv_kind_name(kind) << isa_name(isa);
        }
      }
    }
  }
}

/// One position outweighs the other 255 of its chunk by far: what rounding takes from them is
/// bounded.
TEST(AttentionTest, WeightsBesideALargeOneAreLostByItsRoundingAtMost) {
  const auto ref = make_ref_ops();
  for (const KvKind kind : {KvKind::q8_0, KvKind::q4_0, KvKind::nf4}) {
    Scene scene(scene_geometry(1, 32, 16, kind, kind), 1, {256}, k_attention_seed);
    std::fill(scene.keys[0].begin(), scene.keys[0].end(), 0.0f);
    std::fill(scene.keys[0].begin(), scene.keys[0].begin() + 32, 1.0f);
    std::fill(scene.values[0].begin(), scene.values[0].end(), 1.0f);
    scene.values[0][5] = 0.0f;
    for (const float strength : {1.0f, 1.5f, 2.0f, 3.0f}) {
      std::fill(scene.queries[0].begin(), scene.queries[0].end(), strength);
      scene.append_all(*ref);
      const float expected = scene.attend(*ref, {{0, 255, 1}})[5];
      for (const Isa isa : available_isas()) {
        const float got = scene.attend(*make_cpu_ops(1, isa), {{0, 255, 1}})[5];
        EXPECT_NEAR(got, expected, 255.5f * 0x1p-16f) << kv_kind_name(kind) << ' ' << strength;
      }
    }
  }
}

/// Pool, queries and results each end where memory does.
TEST(AttentionTest, NothingBehindItsMemoryIsTouched) {
  for (const Shape& s : k_shapes) {
    if (s.head_dim > 300) continue;
    Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
                s.kv_heads * s.group, {300}, k_attention_seed);
    // What is read last lies last.
    const auto last = static_cast<int32_t>(scene.pool.size() / scene.geometry.block_bytes()) - 1;
    for (int32_t& block : scene.tables[0]) {
      if (block == last) block = scene.tables[0].back();
    }
    scene.tables[0].back() = last;
    const auto backends = cpu_backends();
    scene.append_all(*backends.front());
    const std::vector<float> expected = scene.attend(*backends.front(), {{0, 290, 10}});
    const GuardedBytes pool(scene.pool.size());
    std::memcpy(pool.data(), scene.pool.data(), scene.pool.size());
    const size_t floats = 10 * scene.q_row();
    const GuardedBytes q(floats * sizeof(float)), out(floats * sizeof(float));
    std::memcpy(q.data(), &scene.queries[0][290 * scene.q_row()], floats * sizeof(float));
    const Segment segment = {scene.tables[0].data(), 0, 10, 290};
    for (const auto& ops : backends) {
      ops->attention(scene.geometry, 1, {&segment, 1}, reinterpret_cast<const float*>(q.data()),
                     scene.heads, scene.scale(), pool.data(), reinterpret_cast<float*>(out.data()));
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), floats * sizeof(float)), 0)
          << ops->description() << " head_dim " << s.head_dim;
    }
  }
}

TEST(AttentionTest, AppendInPiecesStoresTheBytesOfTheReference) {
  const auto ref = make_ref_ops();
  for (const Shape& s : k_shapes) {
    Scene scene(scene_geometry(s.kv_heads, s.head_dim, s.block_tokens, s.k, s.v),
                s.kv_heads * s.group, {150, 33}, k_attention_seed);
    const std::vector<std::byte> before = scene.pool;
    scene.append_all(*ref);
    const std::vector<std::byte> expected = scene.pool;
    for (const auto& ops : cpu_backends()) {
      scene.pool = before;
      const size_t row = scene.kv_row();
      std::vector<float> k = scene.keys[1], v = scene.values[1];
      k.insert(k.end(), scene.keys[0].begin(), scene.keys[0].begin() + static_cast<long>(97 * row));
      v.insert(v.end(), scene.values[0].begin(),
               scene.values[0].begin() + static_cast<long>(97 * row));
      const Segment first[] = {{scene.tables[1].data(), 0, 33, 0},
                               {scene.tables[0].data(), 33, 97, 0}};
      ops->kv_append(scene.geometry, 1, first, k.data(), v.data(), scene.pool.data());
      const Segment second = {scene.tables[0].data(), 0, 53, 97};
      ops->kv_append(scene.geometry, 1, {&second, 1}, &scene.keys[0][97 * row],
                     &scene.values[0][97 * row], scene.pool.data());
      ASSERT_EQ(scene.pool, expected) << ops->description() << " head_dim " << s.head_dim;
    }
  }
}

TEST(AttentionTest, CopiedBlockServesAsTheOriginal) {
  const auto ops = make_cpu_ops(1, available_isas().back());
  Scene scene(scene_geometry(2, 64, 16, KvKind::fp16, KvKind::fp16), 2, {40}, k_attention_seed);
  scene.append_all(*ops);
  const std::vector<float> expected = scene.attend(*ops, {{0, 39, 1}});
  int32_t spare = 0;
  while (std::ranges::count(scene.tables[0], spare) != 0) ++spare;
  ops->copy_block(scene.geometry, scene.tables[0][1], spare, scene.pool.data());
  scene.tables[0][1] = spare;
  EXPECT_TRUE(same_bits(scene.attend(*ops, {{0, 39, 1}}), expected));
}

}  // namespace
}  // namespace outrider::kernels
