#include "base/fmath.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.hpp"

namespace outrider {
namespace {

constexpr uint64_t k_seed = 0xF3A7;

/// Distance from the exact value in units of the float's last place.
double ulps(float got, long double exact) {
  const float rounded = std::abs(static_cast<float>(exact));
  const float next = std::nextafter(rounded, std::numeric_limits<float>::infinity());
  return static_cast<double>(std::abs(static_cast<long double>(got) - exact) /
                             static_cast<long double>(next - rounded));
}

TEST(FmathTest, ExpIsWithinOneUlpOfLongDouble) {
  Random random(k_seed);
  double worst = 0;
  float worst_at = 0;
  for (int i = 0; i < 300'000; ++i) {
    const float x = random.uniform() * 191.5f - 103.0f;
    const double error = ulps(exp_f32(x), std::exp(static_cast<long double>(x)));
    if (error > worst) worst = error, worst_at = x;
  }
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_LT(worst, 1.0) << "at " << worst_at << ", seed " << k_seed;
}

TEST(FmathTest, ExpHandlesTheEndsOfItsRange) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_EQ(exp_f32(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp_f32(88.73f), std::numeric_limits<float>::infinity());
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::infinity()),
            std::numeric_limits<float>::infinity());
  EXPECT_GT(exp_f32(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FmathTest, LogIsWithinOneUlpOfLongDouble) {
  Random random(k_seed);
  double worst = 0;
  float worst_at = 0;
  for (int i = 0; i < 300'000; ++i) {
    // Every positive float is as likely as every other; half of the draws stand around 1.
    const uint32_t bits =
        i % 2 == 0 ? 1 + random.below(0x7F7FFFFFu) : 0x3F000000u + random.below(0x01000000u);
    const float x = std::bit_cast<float>(bits);
    if (x == 1.0f) continue;
    const double error = ulps(log_f32(x), std::log(static_cast<long double>(x)));
    if (error > worst) worst = error, worst_at = x;
  }
  RecordProperty("worst_ulps", std::to_string(worst));
  EXPECT_LT(worst, 1.0) << "at " << worst_at << ", seed " << k_seed;
}

TEST(FmathTest, LogHandlesTheEndsOfItsRange) {
  EXPECT_EQ(log_f32(1.0f), 0.0f);
  EXPECT_EQ(log_f32(0.0f), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(log_f32(std::numeric_limits<float>::infinity()),
            std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(log_f32(-1.0f)));
  EXPECT_TRUE(std::isnan(log_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FmathTest, DoubleExpAndLogAreCloseToLongDouble) {
  Random random(k_seed);
  for (int i = 0; i < 100'000; ++i) {
    const double x = static_cast<double>(random.next_u64() >> 11) * 0x1p-53 * 1400.0 - 700.0;
    const long double exact = std::exp(static_cast<long double>(x));
    ASSERT_LT(std::abs((exp_f64(x) - exact) / exact), 1e-15L) << x;
    const double y = exp_f64(x);
    const long double log_exact = std::log(static_cast<long double>(y));
    ASSERT_LT(std::abs((log_f64(y) - log_exact) / log_exact), 1e-15L) << y;
  }
}

TEST(FmathTest, SinCosIsCloseToLongDoubleFarFromZero) {
  Random random(k_seed);
  for (int i = 0; i < 200'000; ++i) {
    const double range = std::ldexp(1.0, static_cast<int>(random.below(31)));
    const double x = (static_cast<double>(random.next_u64() >> 11) * 0x1p-52 - 1.0) * range;
    const SinCos got = sincos_f64(x);
    ASSERT_LT(std::abs(got.sin - std::sin(static_cast<long double>(x))), 1e-15L) << x;
    ASSERT_LT(std::abs(got.cos - std::cos(static_cast<long double>(x))), 1e-15L) << x;
  }
}

TEST(FmathTest, PowCoversTheRotaryFrequencies) {
  for (const double base : {10'000.0, 100'000.0, 500'000.0, 1e6}) {
    for (int i = 0; i <= 64; ++i) {
      const double exponent = -i / 64.0;
      const long double exact = std::pow(static_cast<long double>(base), -i / 64.0L);
      EXPECT_LT(std::abs((pow_f64(base, exponent) - exact) / exact), 2e-14L) << base << ' ' << i;
    }
  }
}

/// Any change of these bits changes what clients see: it needs a new numerics class.
TEST(FmathTest, BitsArePinned) {
  uint64_t digest = 1469598103934665603ull;
  const auto mix = [&](uint64_t bits) { digest = (digest ^ bits) * 1099511628211ull; };
  for (int i = -2000; i <= 1800; ++i) {
    const float x = static_cast<float>(i) * 0.05f;
    mix(std::bit_cast<uint32_t>(exp_f32(x)));
    mix(std::bit_cast<uint32_t>(log_f32(x * x + 0x1p-130f)));
    const SinCos turn = sincos_f64(i * 1.7);
    mix(std::bit_cast<uint64_t>(turn.sin));
    mix(std::bit_cast<uint64_t>(turn.cos));
    mix(std::bit_cast<uint64_t>(pow_f64(10'000.0, i * 0.001)));
  }
  EXPECT_EQ(digest, 13489909812904442944ull);
}

TEST(FmathTest, ManyExponentialsAtATimeHaveTheSameBits) {
  std::vector<float> x = {0.0f, -0.0f, 88.7f, 89.5f, -104.5f, -87.4f, -95.0f};
  x.push_back(std::numeric_limits<float>::infinity());
  x.push_back(-std::numeric_limits<float>::infinity());
  x.push_back(std::numeric_limits<float>::quiet_NaN());
  for (int i = 0; i < 20'000; ++i) x.push_back(static_cast<float>(i) * 0.00973f - 105.0f);
  std::vector<float> many(x.size());
  exp_f32_n(x.data(), x.size(), many.data());
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(many[i]), std::bit_cast<uint32_t>(exp_f32(x[i]))) << x[i];
  }
}

}  // namespace
}  // namespace outrider
