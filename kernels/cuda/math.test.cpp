#include "kernels/cuda/math.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/fmath.hpp"
#include "base/philox.hpp"
#include "kernels/cuda/float_attention.hpp"
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

/// The half that is nearest to a number, the even one of two: by looking at its neighbours.
uint16_t nearest_half(double exact) {
  const uint16_t guess = float_as_half(static_cast<float>(exact));
  uint16_t best = guess;
  double distance = HUGE_VAL;
  for (const int step : {-1, 0, 1}) {
    const auto bits = static_cast<uint16_t>(guess + step);
    const double away = std::abs(double{half_as_float(bits)} - exact);
    if (away < distance || (away == distance && bits % 2 == 0)) {
      best = bits;
      distance = away;
    }
  }
  return best;
}

/// As a GPU rounds: sums that a float would bring between two halves, too.
TEST(CudaMath, PairsOfHalvesAreRoundedOnce) {
  Random random(0x4A1F);
  const auto draw = [&] {  // of 2^-9 to 2^7
    const uint32_t bits = random.next_u32();
    return static_cast<uint16_t>((bits & 0x83FFu) | (6 + (bits >> 16) % 16) << 10);
  };
  const auto number = [](uint32_t bits) {
    return double{half_as_float(static_cast<uint16_t>(bits))};
  };
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t a = draw(), b = draw();
    // Every other sum ends next to the middle of two halves.
    const uint32_t c =
        i % 2 == 0 ? draw() : float_as_half(static_cast<float>(-number(a) * number(b)));
    const uint32_t zero_high = fused_half2(a, b, c), product = multiply_half2(a << 16, b << 16);
    ASSERT_EQ(zero_high, nearest_half(number(a) * number(b) + number(c)))
        << a << ' ' << b << ' ' << c;
    ASSERT_EQ(product >> 16, nearest_half(number(a) * number(b))) << a << ' ' << b;
  }
  // 1 + 2^-11 lies between 1 and the next half; a little more rounds up, a little less down.
  EXPECT_EQ(fused_half2(float_as_half(0x1p-11f), float_as_half(1.0f), float_as_half(1.0f)),
            0x3C00u);
  EXPECT_EQ(fused_half2(float_as_half(0x1.004p-5f), float_as_half(0x1p-6f), float_as_half(1.0f)),
            0x3C01u);
  EXPECT_EQ(twice(0x1234ABCDu, 0), 0xABCDABCDu);
  EXPECT_EQ(twice(0x1234ABCDu, 1), 0x12341234u);
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
