#include "gateway/api_keys.hpp"

#include <gtest/gtest.h>

namespace outrider::gateway {
namespace {

TEST(ApiKeys, WithoutAFileEverybodyMay) {
  EXPECT_EQ(ApiKeys().tenant_of("anything"), "");
  EXPECT_EQ(ApiKeys().tenant_of_header(std::nullopt), "");
}

TEST(ApiKeys, ReadsNamesCommentsAndBareKeys) {
  auto keys = ApiKeys::parse("# who\n\nalice: sk-1 \r\nsk-2\n  bob:sk:3");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->tenant_of("sk-1"), "alice");
  EXPECT_EQ(keys->tenant_of("sk-2"), "key4");
  EXPECT_EQ(keys->tenant_of("sk:3"), "bob");
  EXPECT_EQ(keys->tenant_of("sk-4"), std::nullopt);
  EXPECT_EQ(keys->tenant_of(""), std::nullopt);
}

TEST(ApiKeys, ReadsBearerHeadersOnly) {
  auto keys = ApiKeys::parse("k");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->tenant_of_header("Bearer k"), "key1");
  EXPECT_EQ(keys->tenant_of_header("bearer  k "), "key1");
  for (const char* wrong : {"", "k", "Bearer", "Bearer ", "Basic k", "Bearer kk", "Bearer k k"}) {
    EXPECT_EQ(keys->tenant_of_header(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(keys->tenant_of_header(std::nullopt), std::nullopt);
}

TEST(ApiKeys, RefusesFilesThatLockEverybodyOutOrOpenToEverybody) {
  EXPECT_FALSE(ApiKeys::parse("").ok());
  EXPECT_FALSE(ApiKeys::parse("# only a comment\n").ok());
  EXPECT_FALSE(ApiKeys::parse("name:\n").ok());
  EXPECT_FALSE(ApiKeys::parse(":key\n").ok());
  EXPECT_FALSE(ApiKeys::load("/nonexistent/keys").ok());
}

}  // namespace
}  // namespace outrider::gateway
