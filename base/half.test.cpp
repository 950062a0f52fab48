#include "base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace outrider {
namespace {

/// The value of a binary16 pattern by its definition.
double definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, EveryFinitePatternHasItsDefinedValueAndComesBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    if ((pattern & 0x7C00) == 0x7C00) continue;
    const float value = half_to_float(pattern);
    ASSERT_EQ(static_cast<double>(value), definition(pattern)) << bits;
    ASSERT_EQ(float_to_half(value), pattern) << bits;
  }
}

TEST(Half, RoundsToNearestEvenBetweenNeighbours) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = definition(bits);
    const double high = definition(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const uint16_t even = bits % 2 == 0 ? bits : static_cast<uint16_t>(bits + 1);
    ASSERT_EQ(float_to_half(middle), even) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(float_to_half(std::nextafter(middle, 1e9f)), bits + 1) << bits;
  }
}

TEST(Half, KeepsInfinityNanAndOverflow) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(half_to_float(0x7C00), infinity);
  EXPECT_EQ(half_to_float(0xFC00), -infinity);
  EXPECT_TRUE(std::isnan(half_to_float(0x7E00)));
  EXPECT_EQ(float_to_half(infinity), 0x7C00);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(65519.0f), 0x7BFF);
  EXPECT_EQ(float_to_half(-1e30f), 0xFC00);
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

}  // namespace
}  // namespace outrider
