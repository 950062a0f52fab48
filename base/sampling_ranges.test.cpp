#include "base/sampling_ranges.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace outrider {
namespace {

TEST(SamplingRanges, HoldTheirEndsUnlessTheyAreOpen) {
  EXPECT_TRUE(ranges::temperature.holds(0));
  EXPECT_TRUE(ranges::temperature.holds(2));
  EXPECT_FALSE(ranges::temperature.holds(-0.001));
  EXPECT_FALSE(ranges::top_p.holds(0));
  EXPECT_TRUE(ranges::top_p.holds(1));
  EXPECT_FALSE(ranges::top_p.holds(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(ranges::top_k.holds(-1));
  EXPECT_FALSE(ranges::top_k.holds(-2));
}

TEST(SamplingRanges, SayWhatIsInside) {
  EXPECT_EQ(describe(ranges::temperature), "a number from 0 to 2");
  EXPECT_EQ(describe(ranges::top_p), "a number above 0, at most 1");
  EXPECT_EQ(describe(IntegerRange{1, 16}), "a whole number from 1 to 16");
  EXPECT_EQ(describe(IntegerRange{0, INT64_MAX}), "a whole number of at least 0");
  EXPECT_EQ(describe(ranges::seed), "a whole number from 0 to 18446744073709551615");
}

}  // namespace
}  // namespace outrider
