#include "tools/server_json.hpp"

#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

std::optional<std::string> error_in(const char* body) {
  return error_of(nlohmann::json::parse(body, nullptr, false));
}

TEST(ServerJson, FindsTheWordsOfAnErrorInEachFormThatServersUse) {
  EXPECT_EQ(error_in(R"({"error":{"message":"lost","code":503}})"), "lost");
  EXPECT_EQ(error_in(R"({"error":"plain"})"), "plain");
  EXPECT_EQ(error_in(R"({"error":{"message":null}})"), R"({"message":null})");
  EXPECT_EQ(error_in(R"({"error":["odd"]})"), R"(["odd"])");
  EXPECT_EQ(error_in(R"({"error":""})"), R"("")") << "no words, but an error";
  for (const char* none : {"", "<html>", "[]", "{}", R"({"error":null})"}) {
    EXPECT_EQ(error_in(none), std::nullopt) << none;
  }
}

TEST(ServerJson, TakesNoTypeForGranted) {
  const auto json = nlohmann::json::parse(
      R"({"null":null,"text":"a","count":7,"less":-1,"more":99999999999,"part":1.5,"list":[1]})");
  EXPECT_EQ(count_of(json, "count"), 7u);
  EXPECT_EQ(count_of(json, "more"), UINT32_MAX);
  for (const char* key : {"null", "text", "less", "part", "list", "missing"}) {
    EXPECT_EQ(count_of(json, key), 0u) << key;
  }
  EXPECT_EQ(number_of(json, "part"), 1.5);
  EXPECT_EQ(number_of(json, "less"), -1);
  EXPECT_EQ(number_of(json, "text"), 0);
  EXPECT_EQ(text_of(json, "text"), "a");
  EXPECT_EQ(text_of(json, "null"), "");
  EXPECT_EQ(text_of(json, "count", "other"), "other");
  EXPECT_EQ(text_of(nlohmann::json::array(), "text"), "");
}

TEST(Rounded, HasThreeDecimals) {
  EXPECT_EQ(nlohmann::json(rounded(0.1 + 0.2)).dump(), "0.3");
  EXPECT_EQ(nlohmann::json(rounded(12345.67891)).dump(), "12345.679");
  EXPECT_EQ(nlohmann::json(rounded(-0.0004)).dump(), "-0.0");
}

}  // namespace
}  // namespace outrider::tools
