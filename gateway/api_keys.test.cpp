#include "gateway/api_keys.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <string>

namespace outrider::gateway {
namespace {

TEST(ApiKeys, WithoutAFileEverybodyMay) {
  EXPECT_EQ(ApiKeys().tenant_of("anything"), "");
  EXPECT_EQ(ApiKeys().tenant_of_header(std::nullopt), "");
}

TEST(ApiKeys, ReadsNamesCommentsAndBareKeys) {
  auto keys = ApiKeys::parse("# who\n\nalice: secret-1 \r\nsecret-2\n  bob:secret:3\nbob:secret-4");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->tenant_of("secret-1"), "alice");
  EXPECT_EQ(keys->tenant_of("secret-2"), ApiKeys::parse("secret-2")->tenant_of("secret-2"))
      << "a key keeps its name when its line moves";
  EXPECT_EQ(keys->tenant_of("secret-2")->substr(0, 4), "key-");
  EXPECT_EQ(keys->tenant_of("secret-2")->find("secret"), std::string::npos);
  EXPECT_EQ(keys->tenant_of("secret:3"), "bob");
  EXPECT_EQ(keys->tenant_of("secret-4"), "bob");
  EXPECT_EQ(keys->tenant_of("secret-5"), std::nullopt);
  EXPECT_EQ(keys->tenant_of(""), std::nullopt);
  EXPECT_TRUE(keys->check_admin("bob").ok());
  EXPECT_TRUE(keys->check_admin("").ok());
  EXPECT_EQ(keys->check_admin("secret-1").error().field, "admin_tenant");
  EXPECT_FALSE(keys->empty());
}

TEST(ApiKeys, ReadsBearerHeadersOnly) {
  auto keys = ApiKeys::parse("k2345678");
  ASSERT_TRUE(keys.ok());
  const auto tenant = keys->tenant_of("k2345678");
  ASSERT_TRUE(tenant.has_value());
  EXPECT_EQ(keys->tenant_of_header("Bearer k2345678"), tenant);
  EXPECT_EQ(keys->tenant_of_header("bearer  k2345678 "), tenant);
  for (const char* wrong : {"", "k2345678", "Bearer", "Bearer ", "Basic k2345678",
                            "Bearer k23456789", "Bearer k2345678 k"}) {
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

TEST(ApiKeys, AreReadFromAFileThatEnds) {
  const std::string pipe = testing::TempDir() + "outrider_api_keys_pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const auto keys = ApiKeys::load(path);
    ASSERT_FALSE(keys.ok());
    EXPECT_EQ(keys.error().message,
              "cannot read the API key file " + path + ": not a regular file");
  }
  std::remove(pipe.c_str());
}

std::string refused(std::string_view text) {
  const auto keys = ApiKeys::parse(text);
  return keys.ok() ? "" : keys.error().message;
}

TEST(ApiKeys, AKeyStandsInAFileOnce) {
  const std::string expected = "line 3 of the API key file has the key of line 1";
  EXPECT_EQ(refused("alice:secret-1\n\nbob:secret-1\n"), expected);
  EXPECT_EQ(refused("alice:secret-1\n\nalice:secret-1\n"), expected);
  EXPECT_EQ(refused("secret-1\n\nbob: secret-1\n"), expected);
}

TEST(ApiKeys, RefusesKeysThatAreSlipsOfThePenWithoutShowingThem) {
  for (const char* text : {"alice:secret 1\n", "alice:secret\t1\n", "alice secret-1\n"}) {
    EXPECT_EQ(refused(text),
              "line 1 of the API key file has a key with a space or a control character inside");
  }
  EXPECT_EQ(refused("al\xE9:secret-1\n"),
            "line 1 of the API key file has a name that is not valid UTF-8");
  EXPECT_EQ(refused("\nalice:secret7\n"),
            "line 2 of the API key file has a key of 7 bytes, the least is 8");
}

}  // namespace
}  // namespace outrider::gateway
