#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/fmath.hpp"
#include "base/philox.hpp"
#include "kernels/cpu/isa.hpp"

namespace outrider::kernels {
namespace {

TEST(VectorMathTest, ExpHasTheBitsOfTheScalarOneOnEachInstructionSet) {
  Random random(0xE4B);
  std::vector<float> x = {0.0f, -0.0f, 1.0f, -103.97f, -104.0f, -1e30f, 88.72f, 88.73f, 1e30f};
  for (int i = 0; i < 100'000; ++i) x.push_back(random.uniform() * 200.0f - 108.0f);
  for (const Isa isa : available_isas()) {
    std::vector<float> out(x.size());
    kernels_of(isa).exp(x.data(), x.size(), out.data());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(exp_f32(x[i])))
          << isa_name(isa) << " exp(" << x[i] << ")";
    }
  }
}

TEST(VectorMathTest, Exp2OfNegativeIsCloseAndTheSameOnEachInstructionSet) {
  Random random(0xE4C);
  std::vector<float> x = {0.0f, -0.0f, -0.5f, -1.0f, -124.9f};
  for (int i = 0; i < 100'000; ++i) x.push_back(random.uniform() * -124.0f);
  std::vector<float> first(x.size());
  portable::kernel_table().exp2_of_negative(x.data(), x.size(), first.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp2(double{x[i]});
    ASSERT_LE(std::abs(first[i] - expected), 2e-7 * expected) << x[i];
  }
  for (const Isa isa : available_isas()) {
    std::vector<float> out(x.size());
    kernels_of(isa).exp2_of_negative(x.data(), x.size(), out.data());
    ASSERT_EQ(std::memcmp(out.data(), first.data(), out.size() * sizeof(float)), 0)
        << isa_name(isa);
    const float ends[] = {-126.0f, -1e30f, -INFINITY, NAN};
    kernels_of(isa).exp2_of_negative(ends, 4, out.data());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(out[i], 0x1p-125f) << isa_name(isa) << ends[i];
    EXPECT_TRUE(std::isnan(out[3])) << isa_name(isa);
  }
}

TEST(HostLoopsTest, PeaksAreTheHighestOfEachBlockOnEachInstructionSet) {
  Random random(0xE4D);
  for (const size_t n : {1u, 15u, 16u, 63u, 64u, 65u, 200u, 1000u}) {
    std::vector<float> row(n);
    for (float& v : row) v = random.uniform() - 0.9f;
    std::vector<float> expected;
    for (size_t at = 0; at < n; at += 64) {
      expected.push_back(*std::max_element(&row[at], &row[at] + std::min<size_t>(64, n - at)));
    }
    for (const Isa isa : available_isas()) {
      std::vector<float> peaks(expected.size());
      EXPECT_TRUE(kernels_of(isa).find_peaks(row.data(), n, peaks.data()));
      EXPECT_EQ(peaks, expected) << isa_name(isa) << n;
      std::vector<float> odd = row;
      odd[n - 1] = NAN;
      EXPECT_FALSE(kernels_of(isa).find_peaks(odd.data(), n, peaks.data()));
    }
  }
}

TEST(HostLoopsTest, PhiloxBlocksAreTheScalarDrawsOnEachInstructionSet) {
  const uint32_t counter[4] = {0xFFFFFFF8u, 7, 0x80000001u, 0xDEADBEEFu};
  const uint32_t key[2] = {0x12345678u, 0xFEDCBA98u};
  for (const Isa isa : available_isas()) {
    uint32_t out[64];
    kernels_of(isa).philox_block(counter, key, out);
    for (uint32_t i = 0; i < 16; ++i) {
      const auto draws =
          philox4x32({counter[0] + i, counter[1], counter[2], counter[3]}, {key[0], key[1]});
      for (size_t d = 0; d < 4; ++d) EXPECT_EQ(out[4 * i + d], draws[d]) << isa_name(isa) << i;
    }
  }
}

TEST(IsaTest, PortableIsAlwaysThereAndTheDefaultIsAvailable) {
  ASSERT_FALSE(available_isas().empty());
  EXPECT_EQ(available_isas().front(), Isa::portable);
  ::setenv("OUTRIDER_ISA", "portable", 1);
  EXPECT_EQ(default_isa(), Isa::portable);
  ::setenv("OUTRIDER_ISA", "no such thing", 1);
  EXPECT_EQ(default_isa(), available_isas().back());
  ::unsetenv("OUTRIDER_ISA");
  EXPECT_EQ(default_isa(), available_isas().back());
}

}  // namespace
}  // namespace outrider::kernels
