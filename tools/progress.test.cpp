#include "tools/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace outrider::tools {
namespace {

TEST(ProgressBar, IsALineNowAndThenWhereThereIsNoTerminal) {
  ManualClock clock;
  std::vector<std::string> said;
  const auto say = [&](const std::string& text) { said.push_back(text); };
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("loading", say, clock, false);
    for (uint64_t second = 0; second < 60; ++second) {
      bar.update(second, 100);
      clock.advance(std::chrono::seconds(1));
    }
    clock.advance(std::chrono::minutes(10));
    bar.update(59, 100);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(said, testing::ElementsAre("loading: 10 %", "loading: 20 %", "loading: 30 %",
                                         "loading: 40 %", "loading: 50 %", "loading: 59 %"));
}

TEST(ProgressBar, DisappearsFromATerminal) {
  ManualClock clock;
  testing::internal::CaptureStderr();
  ProgressBar("loading", {}, clock, true).update(1, 2);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr("loading [####################....................]  50 %"));
  EXPECT_THAT(text, testing::EndsWith("\r\033[K"));
}

}  // namespace
}  // namespace outrider::tools
