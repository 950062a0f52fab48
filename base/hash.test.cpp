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

TEST(Sha256, StartsAgainAsIfNothingHadBeen) {
  Sha256 hash;
  hash.update("something").finish();
  hash.restart();
  EXPECT_EQ(hash.update("abc").finish(), sha256("abc"));
  hash.restart();
  hash.update("half a message");
  hash.restart();
  EXPECT_EQ(hash.finish(), sha256(""));
}

TEST(HmacSha256, MatchesThePublishedExample) {
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_NE(hmac_sha256("", "text"), sha256("text"));
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
