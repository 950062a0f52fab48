#include "base/log.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <string>

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

/// stderr is a pipe meanwhile.
class PipedStderr {
 public:
  PipedStderr() : before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_), 0);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  ~PipedStderr() {
    ::dup2(before_, STDERR_FILENO);
    for (const int fd : {before_, ends_[0], ends_[1]}) ::close(fd);
  }
  /// All that is in it.
  std::string read() const {
    std::string all;
    char part[4096];
    for (pollfd wait{ends_[0], POLLIN, 0}; ::poll(&wait, 1, 0) == 1;) {
      const ssize_t size = ::read(ends_[0], part, sizeof part);
      if (size <= 0) break;
      all.append(part, static_cast<size_t>(size));
    }
    return all;
  }

 private:
  int before_;
  int ends_[2] = {};
};

TEST(Log, APipeThatNobodyReadsHoldsNobodyUp) {
  auto logger = make_logger({.level = "info"});
  ASSERT_TRUE(logger.ok());
  std::string last, next;
  {
    const PipedStderr pipe;
    for (int i = 0; i < 2000; ++i) (*logger)->info("line {} {}", i, std::string(200, 'x'));
    const std::string kept = pipe.read();
    last = kept.substr(kept.rfind("line "));
    (*logger)->info("read again");
    next = pipe.read();
  }
  const int kept = std::stoi(last.substr(5)) + 1;
  EXPECT_GT(kept, 10);
  EXPECT_LT(kept, 2000);
  EXPECT_EQ(last.back(), '\n') << "no half lines";
  const auto note = next.find(std::to_string(2000 - kept) + " lines are lost here");
  EXPECT_NE(note, std::string::npos) << next;
  EXPECT_GT(next.find("read again"), note) << next;
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
