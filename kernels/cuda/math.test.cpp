#include "kernels/cuda/math.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "base/fmath.hpp"
#include "base/philox.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/weight_units.hpp"

namespace outrider::kernels::cuda {
namespace {

/// Every 4099th float, of both signs, with the special ones.
template <class Check>
void for_floats(const Check& check) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    check(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (const uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x3F800000u, 0x80000000u}) {
    check(std::bit_cast<float>(bits));
  }
}

bool same(float a, float b) {
  return (a != a && b != b) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(CudaMath, ExponentialAndLogarithmHaveTheBitsOfTheHost) {
  for_floats([](float x) {
    ASSERT_TRUE(same(exponential(x), exp_f32(x))) << x;
    ASSERT_TRUE(same(logarithm(x), log_f32(x))) << x;
  });
}

TEST(CudaMath, PhiloxDrawsWhatTheHostDraws) {
  for (uint32_t i = 0; i < 100; ++i) {
    const Draws draws = philox(i, 2, 3 * i, 4, 5, 6 + i);
    const auto expected = philox4x32({i, 2, 3 * i, 4}, {5, 6 + i});
    for (size_t d = 0; d < 4; ++d) EXPECT_EQ(draws.of[d], expected[d]);
  }
}

TEST(CudaMath, AFactorBringsMagnitudesIntoTheRangeOfHalves) {
  for_floats([](float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu;
    const float factor = power_of_two(half_exponent(bits));
    const float inverse = power_of_two(-half_exponent(bits));
    ASSERT_EQ(factor * inverse, 1.0f) << x;
    if (bits >= 0x7F800000u) {
      ASSERT_EQ(factor, 1.0f);
      return;
    }
    const float scaled = std::bit_cast<float>(bits) * factor;
    ASSERT_LT(scaled, 0x1p15f) << x;
    if (bits >= 0x07800000u) {  // from 2^-112 on
      ASSERT_GE(scaled, 0x1p14f) << x;
    }
    ASSERT_EQ(scaled * inverse, std::bit_cast<float>(bits)) << x;
  });
}

/// A CPU's NaN and a GPU's, which are not the same bits.
TEST(CudaMath, AnyNaNHasTheSameByte) {
  for (const uint32_t bits : {0x7FC00000u, 0x7FFFFFFFu}) {
    EXPECT_EQ(to_e4m3(std::bit_cast<float>(bits)), 0x3Cu);
    EXPECT_EQ(to_e4m3(std::bit_cast<float>(bits | 0x80000000u)), 0xBCu);
  }
}

TEST(CudaMath, OrderedBitsKeepTheOrderOfNumbers) {
  const float numbers[] = {
      -std::numeric_limits<float>::infinity(), -3.0f, -0x1p-149f, -0.0f, 0.0f, 0x1p-149f, 2.0f,
      std::numeric_limits<float>::infinity()};
  for (size_t i = 0; i + 1 < std::size(numbers); ++i) {
    EXPECT_LT(ordered_bits(numbers[i]), ordered_bits(numbers[i + 1])) << i;
    EXPECT_TRUE(same(of_ordered_bits(ordered_bits(numbers[i])), numbers[i]));
  }
  EXPECT_EQ(ordered_bits(std::numeric_limits<float>::quiet_NaN()), ordered_bits(numbers[0]));
}

}  // namespace
}  // namespace outrider::kernels::cuda
