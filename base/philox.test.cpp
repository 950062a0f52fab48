#include "base/philox.hpp"

#include <gtest/gtest.h>

namespace outrider {
namespace {

// Known answers of the reference implementation (Random123, kat_vectors, philox 4x32 10).
TEST(Philox, MatchesTheKnownAnswers) {
  const std::array<uint32_t, 4> zero = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), zero);
  const std::array<uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}), ones);
  const std::array<uint32_t, 4> pi = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            pi);
}

TEST(Random, SameSeedGivesTheSameValues) {
  Random a(7);
  Random b(7);
  Random c(8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t value = a.next_u64();
    EXPECT_EQ(value, b.next_u64());
    differs |= value != c.next_u64();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, StaysInsideItsBounds) {
  Random random(1);
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_LT(random.below(7), 7u);
    const int64_t value = random.between(-3, 3);
    EXPECT_GE(value, -3);
    EXPECT_LE(value, 3);
    const float uniform = random.uniform();
    EXPECT_GE(uniform, 0.0f);
    EXPECT_LT(uniform, 1.0f);
  }
}

}  // namespace
}  // namespace outrider
