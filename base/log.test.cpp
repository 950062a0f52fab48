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

std::string written(bool json) {
  auto logger = make_logger({.level = "info", .json = json});
  testing::internal::CaptureStderr();
  LogLine("request")
      .text("id", "a\x1f\"b")
      .number("tokens", 7)
      .milliseconds("ms", 1.25)
      .write(**logger);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, NamedValuesAreMembersOfJsonLinesAndWordsOfText) {
  const std::string json = written(true);
  EXPECT_NE(json.find(R"("message":"request","id":"a \"b","tokens":7,"ms":1.2})"),
            std::string::npos)
      << json;
  const std::string text = written(false);
  EXPECT_NE(text.find("request id=a \"b tokens=7 ms=1.2\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("20"), 0u) << text;  // a date comes first
  EXPECT_EQ(text.find('-'), 4u) << text;
}

TEST(Log, WhatAStrangerChoseIsOneBoundedWord) {
  auto logger = make_logger({.level = "info"});
  testing::internal::CaptureStderr();
  LogLine("refused")
      .word("path", "/a b\n\x1b\xc3\xa9")
      .word("param", std::string(200, 'x'))
      .write(**logger);
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("refused path=/a?b???? param=" + std::string(128, 'x') + "\n"),
            std::string::npos)
      << line;
}

TEST(Log, WhatAPlainMessageQuotesIsNeverAMember) {
  auto logger = make_logger({.level = "info", .json = true});
  testing::internal::CaptureStderr();
  (*logger)->info("a\x1flevel=\"x\"");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(R"("message":"a\u001flevel=\"x\""})"), std::string::npos) << line;
}

}  // namespace
}  // namespace outrider
