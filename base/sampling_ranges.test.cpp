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
  EXPECT_TRUE(ranges::repetition_penalty.holds(0.01F));
  EXPECT_FALSE(ranges::repetition_penalty.holds(1e-45));
}

TEST(SamplingRanges, SayWhatIsInside) {
  EXPECT_EQ(describe(ranges::temperature), "a number from 0 to 2");
  EXPECT_EQ(describe(ranges::top_p), "a number above 0, at most 1");
  EXPECT_EQ(describe(ranges::repetition_penalty), "a number from 0.01 to 10");
  EXPECT_EQ(describe(IntegerRange{1, 16}), "a whole number from 1 to 16");
  EXPECT_EQ(describe(IntegerRange{0, INT64_MAX}), "a whole number of at least 0");
  EXPECT_EQ(describe(ranges::seed), "a whole number from 0 to 18446744073709551615");
}

TEST(SamplingRanges, APromptLeavesRoomForOneTokenAtLeast) {
  EXPECT_EQ(*ContextShare({99, 100}).room("prompt"), 1u);
  const auto full = ContextShare{100, 100}.room("messages");
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().field, "messages");
  EXPECT_EQ(full.error().message,
            "the prompt has 100 tokens, the context holds 100 for prompt and output together");
  EXPECT_TRUE(ContextShare({90, 100}).holds(10).ok());
  const auto over = ContextShare{90, 100}.holds(11);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().field, "max_tokens");
  EXPECT_EQ(over.error().message,
            "max_tokens is 11, but the context of 100 tokens leaves 10 after the prompt's 90");
}

}  // namespace
}  // namespace outrider
