#include "base/log.hpp"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(Log, RefusesAnUnknownLevelAndNamesTheFlag) {
  const auto logger = make_logger({.level = "loud"});
  ASSERT_FALSE(logger.ok());
  EXPECT_EQ(logger.error().field, "log-level");
}

TEST(Log, JsonLinesEscapeWhatTheyQuote) {
  auto logger = make_logger({.level = "info", .json = true});
  ASSERT_TRUE(logger.ok());
  testing::internal::CaptureStderr();
  (*logger)->info("say \"hi\"\n\\");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(R"("message":"say \"hi\"\u000a\\"})"), std::string::npos) << line;
}

}  // namespace
}  // namespace outrider
