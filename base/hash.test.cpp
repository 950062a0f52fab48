#include "base/hash.hpp"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(Sha256, MatchesThePublishedExamples) {
  EXPECT_EQ(to_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, DoesNotDependOnHowTheInputIsCut) {
  EXPECT_EQ(Sha256().update("ab").update("c").finish(), sha256("abc"));
}

TEST(ConstantTimeEqual, ComparesWholeTexts) {
  EXPECT_TRUE(constant_time_equal(sha256("secret"), sha256("secret")));
  EXPECT_FALSE(constant_time_equal(sha256("secret"), sha256("secreT")));
  EXPECT_FALSE(constant_time_equal(sha256("secret"), sha256("secret ")));
  EXPECT_FALSE(constant_time_equal(sha256(""), sha256("secret")));
  EXPECT_TRUE(constant_time_equal(sha256(""), sha256("")));
}

}  // namespace
}  // namespace outrider
