#include "kernels/kv_codec.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/philox.hpp"

namespace outrider::kernels {
namespace {

constexpr uint64_t k_codec_seed = 0xC0DE;
constexpr KvTensor k_tensors[] = {KvTensor::keys, KvTensor::values};

std::vector<float> normal_numbers(Random& random, size_t n) {
  std::vector<float> out(n);
  for (float& x : out) {
    x = 0;
    for (int i = 0; i < 12; ++i) x += random.uniform() - 0.5f;
  }
  return out;
}

/// One position's numbers, stored and read back.
std::vector<float> round_trip(KvKind kind, const std::vector<float>& x) {
  std::vector<std::byte> tile(kv_tile_bytes(kind, x.size()));
  kv_store(kind, KvTensor::keys, x.size(), 5, x.data(), tile.data());
  std::vector<float> out;
  for (size_t d = 0; d < x.size(); ++d) {
    out.push_back(kv_read(kind, KvTensor::keys, x.size(), 5, d, tile.data()));
  }
  return out;
}

TEST(KvCodecTest, EveryPositionAndElementHasItsOwnPlace) {
  Random random(k_codec_seed);
  for (const KvKind kind : k_kv_kinds) {
    for (const KvTensor tensor : k_tensors) {
      for (const size_t head_dim : {64u, 80u, 20u, 1u}) {
        std::vector<std::byte> tile(kv_tile_bytes(kind, head_dim));
        std::vector<std::vector<float>> expected(16);
        // Twice, in another order: nothing of the first numbers stays.
        for (size_t turn = 0; turn < 2; ++turn) {
          for (size_t i = 0; i < 16; ++i) {
            const size_t position = turn == 0 ? i : 15 - i;
            const auto x = normal_numbers(random, head_dim);
            kv_store(kind, tensor, head_dim, position, x.data(), tile.data());
            expected[position] = round_trip(kind, x);
          }
        }
        for (size_t position = 0; position < 16; ++position) {
          for (size_t d = 0; d < head_dim; ++d) {
            ASSERT_EQ(kv_read(kind, tensor, head_dim, position, d, tile.data()),
                      expected[position][d])
                << kv_kind_name(kind) << " head_dim " << head_dim << " at " << position << ", " << d
                << " seed " << k_codec_seed;
          }
        }
      }
    }
  }
}

/// Root of the mean square error of normal numbers.
double error_of(KvKind kind) {
  Random random(k_codec_seed);
  double sum = 0;
  constexpr int k_rounds = 200;
  for (int i = 0; i < k_rounds; ++i) {
    const auto x = normal_numbers(random, 64);
    const auto y = round_trip(kind, x);
    for (size_t d = 0; d < x.size(); ++d) sum += (x[d] - y[d]) * (x[d] - y[d]);
  }
  return std::sqrt(sum / (64 * k_rounds));
}

TEST(KvCodecTest, KindsWithFewerBitsAreCoarserAndNoneIsCoarserThanItsLevels) {
  EXPECT_EQ(error_of(KvKind::fp32), 0);
  EXPECT_LT(error_of(KvKind::fp16), 0.0004);
  EXPECT_LT(error_of(KvKind::bf16), 0.003);
  EXPECT_LT(error_of(KvKind::q8_0), 0.006);
  EXPECT_LT(error_of(KvKind::fp8), 0.03);
  EXPECT_LT(error_of(KvKind::nf4), 0.09);
  EXPECT_LT(error_of(KvKind::q4_0), 0.11);
  EXPECT_LT(error_of(KvKind::q3), 0.19);
  EXPECT_LT(error_of(KvKind::q4_0), error_of(KvKind::q3));
}

TEST(KvCodecTest, TheLargestNumberOfAGroupIsKept) {
  std::vector<float> x(32, 0.25f);
  for (const float largest : {4.0f, -4.0f}) {
    x[7] = largest;
    EXPECT_EQ(round_trip(KvKind::q8_0, x)[7],
              127.0f * std::round(4.0f / 127 * 65536) / 65536 * std::copysign(1.0f, largest))
        << largest;
    EXPECT_EQ(round_trip(KvKind::q4_0, x)[7], largest);
    EXPECT_NEAR(round_trip(KvKind::nf4, x)[7], largest, 0x1p-9f);
  }
}

TEST(KvCodecTest, Fp8IsE4M3AndEndsAt448) {
  const std::vector<std::pair<float, float>> pairs = {
      {1.0f, 1.0f},         {-1.0625f, -1.0f},  {1.1875f, 1.25f}, {448.0f, 448.0f},
      {-1000.0f, -448.0f},  {0x1p-9f, 0x1p-9f}, {0x1p-10f, 0.0f}, {0x1.8p-9f, 0x1p-8f},
      {0x1p-6f, 0x1p-6f},   {0.0f, 0.0f},       {240.5f, 240.0f}, {0x1.Fp-7f, 0x1p-6f},
      {std::nanf(""), 1.5f}};
  for (const auto& [in, out] : pairs) {
    EXPECT_EQ(round_trip(KvKind::fp8, {in})[0], out) << in;
  }
}

TEST(KvCodecTest, ZerosStayZeroAndSmallNumbersDoNotBreak) {
  for (const KvKind kind : k_kv_kinds) {
    for (const float y : round_trip(kind, std::vector<float>(64, 0.0f))) EXPECT_EQ(y, 0);
    for (const float y : round_trip(kind, std::vector<float>(64, 0x1p-140f))) {
      EXPECT_LE(std::fabs(y), 0x1p-24f) << kv_kind_name(kind);
    }
    std::vector<std::byte> untouched(kv_tile_bytes(kind, 64));
    EXPECT_EQ(kv_read(kind, KvTensor::values, 64, 3, 9, untouched.data()), 0);
  }
}

TEST(KvCodecTest, WhatAScaleCannotHoldIsNoNumberInItsGroupOnly) {
  for (const KvKind kind : {KvKind::q8_0, KvKind::q4_0, KvKind::nf4, KvKind::q3}) {
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e30f}) {
      std::vector<float> x(64, 1.0f);
      x[40] = bad;
      const auto y = round_trip(kind, x);
      EXPECT_TRUE(std::isnan(y[32])) << kv_kind_name(kind) << ' ' << bad;
      EXPECT_NEAR(y[31], 1.0f, 0.2f) << kv_kind_name(kind) << ' ' << bad;
    }
  }
}

TEST(KvCodecTest, KindsAreKnownByName) {
  for (const KvKind kind : k_kv_kinds) EXPECT_EQ(kv_kind_from_name(kv_kind_name(kind)), kind);
  EXPECT_FALSE(kv_kind_from_name("q5_0"));
}

}  // namespace
}  // namespace outrider::kernels
