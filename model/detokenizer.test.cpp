#include "model/detokenizer.hpp"

#include <gtest/gtest.h>

#include "base/philox.hpp"
#include "base/utf8.hpp"
#include "model/tokenizer_tiny.test.hpp"

namespace outrider::model {
namespace {

/// The token of one byte.
int32_t byte_token(const Tokenizer& tokenizer, char byte) {
  for (int32_t id = 0; tokenizer.contains(id); ++id) {
    if (!tokenizer.is_special(id) && tokenizer.token_bytes(id) == std::string_view(&byte, 1)) {
      return id;
    }
  }
  ADD_FAILURE() << "no token for byte " << int{static_cast<uint8_t>(byte)};
  return 0;
}

TEST(Detokenizer, ACharacterComesOutWithItsLastByte) {
  const auto tokenizer = tiny_tokenizer("smollm");
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\xF0')), "");
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\x9F')), "");
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\x99')), "");
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\x82')), "\U0001F642");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, BytesThatCannotBecomeACharacterAreReplacedAtOnce) {
  const auto tokenizer = tiny_tokenizer("smollm");
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\xE2')), "");
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, 'a')), "\uFFFDa");
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\x80')), "\uFFFD");
}

TEST(Detokenizer, TheRestOfACutCharacterIsOneReplacement) {
  const auto tokenizer = tiny_tokenizer("smollm");
  Detokenizer detokenizer(tokenizer, true);
  detokenizer.push(byte_token(*tokenizer, '\xE2'));
  detokenizer.push(byte_token(*tokenizer, '\x82'));
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ASkippedSpecialTokenDoesNotBreakACharacter) {
  const auto tokenizer = tiny_tokenizer("smollm");
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\xC3')), "");
  EXPECT_EQ(detokenizer.push(tokenizer->encode("<|im_end|>", {.add_special = false})[0]), "");
  EXPECT_EQ(detokenizer.push(byte_token(*tokenizer, '\xA9')), "\u00E9");
}

TEST(Detokenizer, AllPushesJoinedAreTheDecodedTextAndEachIsValid) {
  const auto tokenizer = tiny_tokenizer("smollm");
  constexpr uint64_t k_seed = 3;
  Random random(k_seed);
  for (int round = 0; round < 5000; ++round) {
    const bool skip = round % 2 == 0;
    std::vector<int32_t> ids;
    for (uint32_t i = random.below(30); i > 0; --i) {
      // Half of them lone bytes, most of which are no character.
      ids.push_back(static_cast<int32_t>(random.below(i % 2 == 0 ? 512 : 259)));
    }
    Detokenizer detokenizer(tokenizer, skip);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string text = detokenizer.push(id);
      ASSERT_TRUE(utf8_valid(text)) << "seed " << k_seed << " round " << round;
      joined += text;
    }
    ASSERT_EQ(joined + detokenizer.finish(), tokenizer->decode(ids, skip))
        << "seed " << k_seed << " round " << round;
  }
}

TEST(Detokenizer, ACopyGoesOnIndependently) {
  const auto tokenizer = tiny_tokenizer("smollm");
  Detokenizer first(tokenizer, true);
  first.push(byte_token(*tokenizer, '\xC3'));
  Detokenizer second = first;
  EXPECT_EQ(first.push(byte_token(*tokenizer, '\xA9')), "\u00E9");
  EXPECT_EQ(second.push(byte_token(*tokenizer, '\xA8')), "\u00E8");
}

}  // namespace
}  // namespace outrider::model
