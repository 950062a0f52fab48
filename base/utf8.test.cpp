#include "base/utf8.hpp"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(Utf8, AcceptsTheEdgesOfEachLength) {
  for (const char* text :
       {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(utf8_valid(text)) << text;
  }
}

TEST(Utf8, RefusesOverlongSurrogatesAndValuesAboveTheLast) {
  for (const char* text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                           "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80",
                           "\xF5\x80\x80\x80", "\xFF", "\xC3", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(utf8_valid(text)) << text;
  }
}

TEST(Utf8, FindsTheIncompleteEnd) {
  EXPECT_EQ(utf8_incomplete_suffix("abc"), 0u);
  EXPECT_EQ(utf8_incomplete_suffix("abc\xC3"), 1u);
  EXPECT_EQ(utf8_incomplete_suffix("abc\xE2\x82"), 2u);
  EXPECT_EQ(utf8_incomplete_suffix("abc\xF0\x9F\x98"), 3u);
  EXPECT_EQ(utf8_incomplete_suffix("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_suffix("abc\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_suffix("abc\xE0\x80"), 0u);
}

// Expected values are those of Python's bytes.decode("utf-8", errors="replace").
TEST(Utf8, ReplacesEachMaximalInvalidPartOnce) {
  EXPECT_EQ(utf8_replace_invalid("a\xFF"
                                 "b"),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(utf8_replace_invalid("\xF0\x9F\x98"), "\xEF\xBF\xBD");
  EXPECT_EQ(utf8_replace_invalid("\xE2\x82z"), "\xEF\xBF\xBDz");
  EXPECT_EQ(utf8_replace_invalid("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(utf8_replace_invalid("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace outrider
