#include "base/comma_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider {
namespace {

using testing::ElementsAre;

TEST(CommaList, EntriesHaveNoBlanksAroundThem) {
  EXPECT_THAT(comma_list("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(comma_list(" a b ,\tc  "), ElementsAre("a b", "c"));
}

TEST(CommaList, KeepsEmptyEntriesForWhoRefusesThem) {
  EXPECT_THAT(comma_list(""), ElementsAre(""));
  EXPECT_THAT(comma_list(" , a,"), ElementsAre("", "a", ""));
}

}  // namespace
}  // namespace outrider
