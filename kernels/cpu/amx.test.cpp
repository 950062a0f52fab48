#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/test_support.hpp"
#define OUTRIDER_ISA amx_emulated
#include "kernels/cpu/amx_emulation.inl.hpp"
#include "kernels/cpu/amx_traps.hpp"

namespace outrider::kernels {

namespace amx_emulated {
const KernelTable& kernel_table() noexcept {
  static const KernelTable table = amx_table<EmulatedTiles, portable::kernel_table>();
  return table;
}
}  // namespace amx_emulated

namespace amx_emulated_avx512 {
const KernelTable& kernel_table() noexcept;
}  // namespace amx_emulated_avx512

namespace {

using namespace testing_support;
using amx_emulated::EmulatedTiles;
using amx_emulated::TileConfig;

constexpr uint64_t k_amx_seed = 0xA3C;

/// Tile 0: [2 rows][1 sum], 1: [2][8 bytes], 2: [2][4 bytes].
constexpr TileConfig small_tiles() {
  TileConfig config;
  for (size_t i = 0; i < 3; ++i) {
    config.rows[i] = 2;
    config.row_bytes[i] = i == 1 ? 8 : 4;
  }
  return config;
}

TEST(AmxEmulationTest, SumsAreThoseOfHandComputedCases) {
  EmulatedTiles::configure(small_tiles());
  // Rows of a stand 10 bytes apart, those of b 4.
  const uint8_t a[] = {1, 2, 3, 4, 5, 6, 7, 8, 99, 99, 255, 128, 0, 0, 0, 0, 0, 127};
  const int8_t b[] = {1, -1, 2, -2, 10, 20, 30, -128};
  const int32_t old[] = {1000, -7};
  int32_t sums[2] = {};
  EmulatedTiles::load<0>(old, 4);
  EmulatedTiles::load<1>(a, 10);
  EmulatedTiles::load<2>(b, 4);
  EmulatedTiles::dot_unsigned<0, 1, 2>();
  EmulatedTiles::store<0>(sums, 4);
  EXPECT_EQ(sums[0], 1000 + (1 - 2 + 6 - 8) + (50 + 120 + 210 - 1024));
  EXPECT_EQ(sums[1], -7 + (255 - 128) - 127 * 128);
  EmulatedTiles::load<0>(old, 4);
  EmulatedTiles::dot_signed<0, 1, 2>();
  EmulatedTiles::store<0>(sums, 4);
  EXPECT_EQ(sums[0], 1000 + (1 - 2 + 6 - 8) + (50 + 120 + 210 - 1024));
  EXPECT_EQ(sums[1], -7 + (-1 + 128) - 127 * 128);
  EmulatedTiles::zero<0>();
  EmulatedTiles::dot_signed<0, 1, 2>();
  EmulatedTiles::store<0>(sums, 4);
  EXPECT_EQ(sums[1], 127 - 127 * 128);
  EmulatedTiles::release();
}

/// Eight groups of four products, at the ends of both ranges, and sums that wrap.
TEST(AmxEmulationTest, FullTilesReachTheEndsOfTheirRanges) {
  EmulatedTiles::configure(amx_emulated::k_tile_config<32>);
  uint8_t a[16][32];
  int8_t b[8][64];
  int32_t sums[16][16];
  std::fill_n(&a[0][0], sizeof a, uint8_t{0x80});
  std::fill_n(&b[0][0], sizeof b, int8_t{-128});
  std::fill_n(&sums[0][0], 256, INT32_MAX);
  EmulatedTiles::load<4>(a, 32);
  EmulatedTiles::load<6>(b, 64);
  EmulatedTiles::load<0>(sums, 64);
  EmulatedTiles::dot_unsigned<0, 4, 6>();
  EmulatedTiles::store<0>(sums, 64);
  for (const auto& row : sums) EXPECT_EQ(row[15], INT32_MAX - 32 * 128 * 128);
  EmulatedTiles::dot_signed<0, 4, 6>();
  EmulatedTiles::dot_signed<0, 4, 6>();
  EmulatedTiles::store<0>(sums, 64);
  for (const auto& row : sums) EXPECT_EQ(row[0], INT32_MIN + (32 * 128 * 128 - 1));
  EmulatedTiles::release();
}

/// A tile holds zeros beyond its rows and columns, and what it held before a new configuration.
TEST(AmxEmulationTest, WhatLiesOutsideATileIsZero) {
  EmulatedTiles::configure(small_tiles());
  const uint8_t ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  EmulatedTiles::load<1>(ones, 8);
  EXPECT_EQ(EmulatedTiles::state().tiles[1].bytes[1][7], 1);
  EXPECT_EQ(EmulatedTiles::state().tiles[1].bytes[1][8], 0);
  EXPECT_EQ(EmulatedTiles::state().tiles[1].bytes[2][0], 0);
  EmulatedTiles::configure(small_tiles());
  EXPECT_EQ(EmulatedTiles::state().tiles[1].bytes[0][0], 0);
  EmulatedTiles::release();
}

TEST(AmxEmulationTest, WhatFaultsOnTheCpuTraps) {
  EXPECT_DEATH(EmulatedTiles::zero<0>(), "");
  TileConfig config = small_tiles();
  config.palette = 2;
  EXPECT_DEATH(EmulatedTiles::configure(config), "");
  config = small_tiles();
  config.rows[2] = 1;
  EmulatedTiles::configure(config);
  EXPECT_DEATH((EmulatedTiles::dot_signed<0, 1, 2>()), "");
  EXPECT_DEATH(EmulatedTiles::zero<3>(), "");
  EmulatedTiles::release();
}

bool has_avx512() {
  const auto isas = available_isas();
  return std::find(isas.begin(), isas.end(), Isa::avx512) != isas.end();
}

/// The kernels over emulated tiles and plain vectors or, where there are some, those of AVX-512.
std::vector<std::unique_ptr<Ops>> emulated_backends() {
  std::vector<std::unique_ptr<Ops>> out;
  out.push_back(make_cpu_ops(2, amx_emulated::kernel_table(), "amx emulated"));
#if defined(__x86_64__)
  if (has_avx512()) {
    out.push_back(make_cpu_ops(3, amx_emulated_avx512::kernel_table(), "amx emulated over avx512"));
  }
#endif
  return out;
}

struct Problem {
  Problem(WeightType t, size_t outputs, size_t width, size_t rows)
      : type(t),
        n(outputs),
        k(width),
        m(rows),
        random(k_amx_seed + n * 1000 + k),
        weights(random_weights(random, type, n * k)),
        up(random_weights(random, type, n * k)),
        x(random_floats(random, m * k)),
        bias(random_floats(random, n)),
        old_y(random_floats(random, m * n)) {}

  /// Of the first `rows` rows: plain, on top of bias and old values, and gated.
  std::vector<float> run(Ops& ops, size_t rows) const {
    const auto w = ops.pack({type, weights.data(), n, k});
    const auto u = ops.pack({type, up.data(), n, k});
    std::vector<float> y(3 * rows * n);
    std::copy_n(old_y.begin(), rows * n, y.begin() + static_cast<long>(rows * n));
    const Product products[] = {
        {.w = w.get(), .y = y.data()},
        {.w = w.get(), .bias = bias.data(), .accumulate = true, .y = &y[rows * n]},
        {.w = w.get(), .y = &y[2 * rows * n], .up = u.get()}};
    ops.matmul({x.data()}, rows, products);
    return y;
  }

  WeightType type;
  size_t n, k, m;
  Random random;
  std::vector<std::byte> weights, up;
  std::vector<float> x, bias, old_y;
};

void expect_same_bits(const Problem& problem, size_t rows) {
  const auto fastest = make_cpu_ops(2, available_isas().back());
  const auto portable = make_cpu_ops(2, Isa::portable);
  const std::vector<float> expected = problem.run(*portable, rows);
  EXPECT_TRUE(same_bits(problem.run(*fastest, rows), expected));
  for (const auto& ops : emulated_backends()) {
    ASSERT_TRUE(same_bits(problem.run(*ops, rows), expected))
        << weight_type_info(problem.type)->name << " n " << problem.n << " k " << problem.k
        << " rows " << rows << ' ' << ops->description() << " seed " << k_amx_seed;
  }
}

TEST(AmxMatmulTest, BitsAreThoseOfTheOtherInstructionSetsForEachTypeAndNumberOfRows) {
  for (const WeightType type : k_weight_types) {
    const bool in_supers = weight_type_info(type)->block_elements == 256;
    const Problem problem(type, 19, in_supers ? 512 : 96, 40);
    for (size_t rows = 1; rows <= 40; ++rows) expect_same_bits(problem, rows);
  }
}

/// Several passes over k, their last one short; odd numbers of outputs, panels and groups.
TEST(AmxMatmulTest, BitsAreThoseOfTheOtherInstructionSetsForManyRowsAndLongOnes) {
  expect_same_bits({WeightType::q4_1, 33, 32, 133}, 133);
  expect_same_bits({WeightType::q5_0, 17, 544, 101}, 101);
  expect_same_bits({WeightType::q8_0, 65, 2080, 113}, 113);
  expect_same_bits({WeightType::q4_0, 1, 4128, 100}, 100);
  expect_same_bits({WeightType::q5_1, 50, 608, 300}, 300);
  expect_same_bits({WeightType::q4_k, 49, 2304, 129}, 129);
  expect_same_bits({WeightType::q5_k, 30, 768, 117}, 117);
  expect_same_bits({WeightType::q6_k, 31, 4352, 102}, 102);
}

#if defined(__linux__) && defined(__x86_64__)
/// The instructions themselves: by the CPU if it has them, else trapped one by one.
TEST(AmxMatmulTest, TheMachineCodeGivesTheBitsOfTheOtherInstructionSets) {
  if (!has_avx512()) return;  // its vectors need it
  const AmxTraps<EmulatedTiles, TileConfig> traps;
  const auto ops = make_cpu_ops(2, amx::kernel_table(), "amx");
  const auto portable = make_cpu_ops(2, Isa::portable);
  for (const WeightType type : k_weight_types) {
    const Problem problem(type, 19, 256, 37);
    for (const size_t rows : {15, 16, 37}) {
      ASSERT_TRUE(same_bits(problem.run(*ops, rows), problem.run(*portable, rows)))
          << weight_type_info(type)->name << " rows " << rows << " seed " << k_amx_seed;
    }
  }
}
#endif

}  // namespace
}  // namespace outrider::kernels
