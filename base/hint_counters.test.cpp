#include "base/hint_counters.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace outrider {
namespace {

using Numbers = std::array<uint64_t, sizeof(HintCounters) / sizeof(uint64_t)>;

TEST(HintCounters, SumsAndDifferencesAreOfEachNumber) {
  Numbers first;
  Numbers second;
  for (size_t i = 0; i < first.size(); ++i) {
    first[i] = 1000 + i;
    second[i] = 7 * i + 1;
  }
  auto counters = std::bit_cast<HintCounters>(first);
  counters += std::bit_cast<HintCounters>(second);
  const auto sums = std::bit_cast<Numbers>(counters);
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], first[i] + second[i]) << i;
  counters -= std::bit_cast<HintCounters>(first);
  EXPECT_EQ(std::bit_cast<Numbers>(counters), second);
}

TEST(HintCounters, EachOutcomeAndSourceHasAName) {
  for (size_t i = 0; i < k_hint_outcomes; ++i) {
    EXPECT_NE(to_string(static_cast<HintOutcome>(i)), "unknown") << i;
  }
  for (size_t i = 0; i < k_hint_sources; ++i) {
    EXPECT_NE(to_string(static_cast<HintSource>(i)), "unknown") << i;
  }
}

}  // namespace
}  // namespace outrider
