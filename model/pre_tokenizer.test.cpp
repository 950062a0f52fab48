#include "model/pre_tokenizer.hpp"

#include <gmock/gmock.h>

#include <vector>

#include "base/philox.hpp"
#include "base/utf8.hpp"
#include "model/tokenizer_tiny.test.hpp"

namespace outrider::model {
namespace {

using testing::ElementsAre;

std::vector<std::string> words(std::string_view rule, std::string_view text) {
  const auto splitter = PreTokenizer::create(rule);
  EXPECT_TRUE(splitter.ok());
  std::vector<std::string> out;
  (*splitter)->split(text, [&](std::string_view word) { out.emplace_back(word); });
  return out;
}

TEST(PreTokenizer, Gpt2KeepsDigitsTogetherAndGivesTheLastSpaceToTheWord) {
  EXPECT_THAT(words("gpt-2", "it's  a 123 b!!\n\n x"),
              ElementsAre("it", "'s", " ", " a", " 123", " b", "!!", "\n\n", " x"));
  EXPECT_EQ(words("default", "it's  a 123"), words("gpt-2", "it's  a 123"));
}

TEST(PreTokenizer, SmollmCutsEachDigitAndTreatsItAsTheEndOfItsNeighbours) {
  EXPECT_THAT(words("smollm", "a  12 b"), ElementsAre("a", "  ", "1", "2", " b"));
  EXPECT_THAT(words("smollm", "x\u0661\u0662 \u2167"),
              ElementsAre("x", "\u0661", "\u0662", " ", "\u2167"));
}

TEST(PreTokenizer, Qwen2CutsEachDigitAndKeepsLineEndsTogether) {
  EXPECT_THAT(words("qwen2", "IT'S 12!\r\n\r\n  x"),
              ElementsAre("IT", "'S", " ", "1", "2", "!\r\n\r\n", " ", " x"));
  EXPECT_THAT(words("qwen2", "(abc  \n  d"), ElementsAre("(abc", "  \n", " ", " d"));
}

TEST(PreTokenizer, Llama3CutsDigitsInThrees) {
  EXPECT_THAT(words("llama-bpe", "12345678 a"), ElementsAre("123", "456", "78", " a"));
}

TEST(PreTokenizer, SpacesAreUnicodesWhiteSpace) {
  EXPECT_THAT(words("gpt-2", "a\u00A0\u3000b"), ElementsAre("a", "\u00A0", "\u3000", "b"));
  EXPECT_THAT(words("gpt-2", "a\u0085b"), ElementsAre("a", "\u0085", "b"));
  // Not white space since Unicode 6.3, though PCRE2's \h has it.
  EXPECT_THAT(words("gpt-2", "a \u180E"), ElementsAre("a", " \u180E"));
}

TEST(PreTokenizer, LettersNewerThanTheLibrarysTablesAreLetters) {
  // Unicode 15 and 16: CJK extension H, Garay, Kawi digits.
  EXPECT_THAT(words("gpt-2", "a\U00031350"), ElementsAre("a\U00031350"));
  EXPECT_THAT(words("gpt-2", "a\U00010D70"), ElementsAre("a\U00010D70"));
  EXPECT_THAT(words("gpt-2", "1\U00011F50"), ElementsAre("1\U00011F50"));
  EXPECT_THAT(words("smollm", "1\U00011F50"), ElementsAre("1", "\U00011F50"));
}

TEST(PreTokenizer, ARunOfWhiteSpaceEndsAtItsLastLineEnd) {
  for (const char* rule : {"qwen2", "llama-bpe"}) {
    EXPECT_THAT(words(rule, "a \n \r\n\t\n  b"), ElementsAre("a", " \n \r\n\t\n", " ", " b"))
        << rule;
    EXPECT_THAT(words(rule, "\u0085\n\x0B\f\u2028 x"),
                ElementsAre("\u0085\n", "\x0B\f\u2028", " x"))
        << rule;
    EXPECT_THAT(words(rule, "!\n\n \n"), ElementsAre("!\n\n", " \n")) << rule;
  }
}

TEST(PreTokenizer, NoRunIsTooLongForTheMatchLimit) {
  // PCRE2 by itself gives up after 10 million steps.
  const std::string spaces(size_t{12} << 20, ' ');
  for (const char* rule : {"gpt-2", "smollm", "qwen2", "llama-bpe"}) {
    EXPECT_EQ(words(rule, spaces + "x").size(), 2u) << rule;
  }
}

TEST(PreTokenizer, TheWordsJoinedAreTheText) {
  constexpr uint64_t k_seed = 9;
  Random random(k_seed);
  for (const char* rule : {"gpt-2", "smollm", "llama-bpe"}) {
    const auto splitter = PreTokenizer::create(rule);
    ASSERT_TRUE(splitter.ok());
    for (int round = 0; round < 2000; ++round) {
      const std::string text = utf8_replace_invalid(random_text(random));
      std::string joined;
      (*splitter)->split(text, [&](std::string_view word) { joined += word; });
      ASSERT_EQ(joined, text) << rule << " seed " << k_seed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace outrider::model
