#include "model/tokenizer.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "base/philox.hpp"
#include "base/utf8.hpp"
#include "model/bpe_merger.hpp"
#include "model/gguf.hpp"
#include "model/tokenizer_tiny.test.hpp"

namespace outrider::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Type = TokenizerData::Type;

/// Joins the lowest-ranked neighbours, the leftmost first, by looking at all of them each time.
class NaiveMerger {
 public:
  explicit NaiveMerger(const TokenizerData& data) {
    for (size_t id = 0; id < data.tokens.size(); ++id) ids_[data.tokens[id]] = int32_t(id);
    for (size_t rank = 0; rank < data.merges.size(); ++rank) ranks_[data.merges[rank]] = rank;
  }

  std::vector<int32_t> merge(std::string_view word) const {
    std::vector<std::string> parts;
    for (const char c : word) parts.push_back(byte_alphabet()[static_cast<uint8_t>(c)]);
    while (true) {
      size_t best = parts.size();
      size_t best_rank = SIZE_MAX;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks_.find(parts[i] + " " + parts[i + 1]);
        if (found == ranks_.end() || found->second >= best_rank) continue;
        best = i;
        best_rank = found->second;
      }
      if (best == parts.size()) break;
      parts[best] += parts[best + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> out;
    for (const std::string& part : parts) out.push_back(ids_.at(part));
    return out;
  }

 private:
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<std::string, size_t> ranks_;
};

std::vector<int32_t> encode_all(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true});
}

int32_t special(const Tokenizer& tokenizer, std::string_view name) {
  return encode_all(tokenizer, name).at(0);
}

TEST(Tokenizer, AnEmptyTextHasNoIds) {
  EXPECT_THAT(tiny_tokenizer("smollm")->encode(""), IsEmpty());
}

TEST(Tokenizer, WordsMergeAsANaiveMergerMergesThem) {
  const TokenizerData data = tiny_data("gpt-2");
  const NaiveMerger naive(data);
  const auto merger = BpeMerger::create(data, /*whole_words_first=*/false);
  ASSERT_TRUE(merger.ok());
  constexpr uint64_t k_seed = 7;
  Random random(k_seed);
  for (int round = 0; round < 3000; ++round) {
    const char* alphabet = round % 2 == 0 ? "etaoinsh" : "the sandigr ";
    const uint32_t size = round % 2 == 0 ? 8 : 12;
    std::string word;
    for (uint32_t i = random.below(60); i > 0; --i) word += alphabet[random.below(size)];
    std::vector<int32_t> ids;
    (*merger)->append(word, ids);
    ASSERT_EQ(ids, naive.merge(word)) << "seed " << k_seed << " round " << round << ": " << word;
  }
}

TEST(Tokenizer, AnyBytesDecodeToThemselvesWithInvalidUtf8Replaced) {
  constexpr uint64_t k_seed = 11;
  Random random(k_seed);
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe"}) {
    const auto tokenizer = tiny_tokenizer(pre);
    for (int round = 0; round < 2000; ++round) {
      const std::string text = random_text(random);
      const auto ids = encode_all(*tokenizer, text);
      ASSERT_EQ(tokenizer->decode(ids), utf8_replace_invalid(text))
          << pre << " seed " << k_seed << " round " << round;
    }
  }
}

TEST(Tokenizer, InvalidUtf8EncodesAsItsReplacement) {
  const auto tokenizer = tiny_tokenizer("smollm");
  EXPECT_EQ(encode_all(*tokenizer, "a\xFF\xE2\x82"), encode_all(*tokenizer, "a\uFFFD\uFFFD"));
}

TEST(Tokenizer, ALongRunOfOneCharacterTakesNoQuadraticTime) {
  // A quadratic merger or splitter would run for minutes, at the last one for hours.
  const auto run_of = [](std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() < bytes) text += unit;
    return text;
  };
  for (const char* pre : {"smollm", "qwen2", "llama-bpe"}) {
    const auto tokenizer = tiny_tokenizer(pre);
    for (const char* unit : {"a", " ", "\n", "1", "!", "<|im_", "\u00A0", "\u4E2D", " \n"}) {
      const std::string text = run_of(unit, size_t{1} << 17);
      EXPECT_EQ(tokenizer->decode(encode_all(*tokenizer, text)), text) << pre << " " << unit;
    }
  }
  const auto tokenizer = tiny_tokenizer("smollm");
  const std::string text = run_of("a", size_t{1} << 20);
  EXPECT_EQ(tokenizer->decode(encode_all(*tokenizer, text)), text);
}

TEST(Tokenizer, ALongRunOfAccentsOutOfOrderTakesNoQuadraticTime) {
  const auto tokenizer = tiny_tokenizer("qwen2");
  std::string text = "e";
  std::string sorted = "e";
  constexpr int k_pairs = 1 << 16;
  for (int i = 0; i < k_pairs; ++i) text += "\u0301\u0316";  // classes 230 and 220
  for (int i = 0; i < k_pairs; ++i) sorted += "\u0316";
  for (int i = 0; i < k_pairs; ++i) sorted += "\u0301";
  const std::string normalised = tokenizer->decode(encode_all(*tokenizer, text));
  // The first acute joins the e: U+00E9.
  EXPECT_EQ(normalised.size(), sorted.size() - 1);
  EXPECT_EQ(encode_all(*tokenizer, text), encode_all(*tokenizer, sorted));
}

TEST(Tokenizer, QwenTextIsNormalisedAndOthersIsNot) {
  const std::string apart = "e\u0301 \u1100\u1161\u11A8 \u212B";
  const std::string joined = "\u00E9 \uAC01 \u00C5";
  const auto qwen = tiny_tokenizer("qwen2");
  EXPECT_EQ(qwen->decode(encode_all(*qwen, apart)), joined);
  const auto smollm = tiny_tokenizer("smollm");
  EXPECT_EQ(smollm->decode(encode_all(*smollm, apart)), apart);
}

TEST(Tokenizer, SpecialTokensInTextAreParsedOnlyWhenAsked) {
  const auto tokenizer = tiny_tokenizer("smollm");
  const std::string text = "<|im_start|>a<|im_end|>";
  EXPECT_THAT(encode_all(*tokenizer, text),
              ElementsAre(special(*tokenizer, "<|im_start|>"), testing::_,
                          special(*tokenizer, "<|im_end|>")));
  const auto plain = tokenizer->encode(text, {.add_special = false, .parse_special = false});
  EXPECT_TRUE(std::none_of(plain.begin(), plain.end(),
                           [&](int32_t id) { return tokenizer->is_special(id); }));
  EXPECT_EQ(tokenizer->decode(plain), text);
}

TEST(Tokenizer, LookAlikesOfSpecialTokensAreText) {
  const auto tokenizer = tiny_tokenizer("smollm");
  for (const char* text : {"<|im_start", "<|IM_START|>", "|im_end|>", "<|", "< |im_end|>", "<<|"}) {
    for (const int32_t id : encode_all(*tokenizer, text)) {
      EXPECT_FALSE(tokenizer->is_special(id)) << text;
    }
  }
}

TEST(Tokenizer, TheLongestOfTwoSpecialTokensWins) {
  TokenizerData data = tiny_data("smollm");
  data.tokens.insert(data.tokens.end(), {"<x>", "<x><y>", "<y>"});
  data.types.insert(data.types.end(), {Type::control, Type::user_defined, Type::control});
  const auto tokenizer = Tokenizer::create(data);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT(encode_all(**tokenizer, "<x><y><x><x>"), ElementsAre(513, 512, 512));
  // A user-defined token is text to the model, whoever wrote it.
  EXPECT_EQ((*tokenizer)->encode("<x><y>", {false, false}), std::vector<int32_t>{513});
  EXPECT_FALSE((*tokenizer)->is_special(513));
  EXPECT_TRUE((*tokenizer)->is_special(512));
}

TEST(Tokenizer, BosAndEosAreAddedWhereTheModelWantsThem) {
  TokenizerData data = tiny_data("smollm");
  data.add_bos = true;
  data.add_eos = true;
  const auto tokenizer = Tokenizer::create(data);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->encode(""), ElementsAre(data.bos, data.eos));
  EXPECT_THAT((*tokenizer)->encode("", {.add_special = false}), IsEmpty());
}

TEST(Tokenizer, SkippedSpecialTokensLeaveNoText) {
  const auto tokenizer = tiny_tokenizer("smollm");
  const auto ids = encode_all(*tokenizer, "<|im_start|>hi<|im_end|>");
  EXPECT_EQ(tokenizer->decode(ids, /*skip_special_tokens=*/true), "hi");
  EXPECT_EQ(tokenizer->decode(ids), "<|im_start|>hi<|im_end|>");
}

TEST(Tokenizer, EndOfTurnAndEndOfTextEndAGeneration) {
  const auto tokenizer = tiny_tokenizer("smollm");
  EXPECT_THAT(tokenizer->end_of_generation(),
              testing::UnorderedElementsAre(special(*tokenizer, "<|im_end|>"),
                                            special(*tokenizer, "<|endoftext|>")));
}

TEST(Tokenizer, AByteThatTheVocabularyLacksIsDropped) {
  TokenizerData data;
  data.pre = "gpt-2";
  data.tokens = {"a", "b"};
  data.types = {Type::normal, Type::normal};
  const auto tokenizer = Tokenizer::create(data);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_THAT((*tokenizer)->encode("axb"), ElementsAre(0, 1));
}

TEST(Tokenizer, TheFingerprintTellsDifferentTokenizersApart) {
  const auto base = tiny_tokenizer("smollm");
  EXPECT_EQ(base->fingerprint(), tiny_tokenizer("smollm")->fingerprint());
  EXPECT_NE(base->fingerprint(), tiny_tokenizer("gpt-2")->fingerprint());
  TokenizerData data = tiny_data("smollm");
  std::swap(data.merges[0], data.merges[1]);
  const auto other = Tokenizer::create(data);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(base->fingerprint(), (*other)->fingerprint());
}

TEST(Tokenizer, TheFirstDifferenceIsNamedWhereFingerprintsDiffer) {
  const TokenizerData base = tiny_data("smollm");
  const auto difference = [&](void (*change)(TokenizerData&)) {
    TokenizerData other = base;
    change(other);
    return first_difference(base, other);
  };
  EXPECT_EQ(difference([](TokenizerData&) {}), "");
  EXPECT_EQ(difference([](TokenizerData& d) { d.pre = "gpt-2"; }),
            "they split texts by smollm and gpt-2");
  EXPECT_THAT(difference([](TokenizerData& d) { d.tokens.pop_back(); }), HasSubstr(" tokens"));
  EXPECT_EQ(difference([](TokenizerData& d) { d.tokens[7] += "x"; }), "token 7 is another");
  EXPECT_EQ(difference([](TokenizerData& d) { d.types[7] = Type::unused; }),
            "other types of tokens");
  EXPECT_EQ(difference([](TokenizerData& d) { d.merges.pop_back(); }), "other merges");
  EXPECT_THAT(difference([](TokenizerData& d) { d.bos += 1; }), HasSubstr(" as BOS"));
  EXPECT_THAT(difference([](TokenizerData& d) { d.eos += 1; }), HasSubstr(" as EOS"));
  EXPECT_THAT(difference([](TokenizerData& d) { d.add_bos = !d.add_bos; }),
              HasSubstr("BOS begins"));
  EXPECT_THAT(difference([](TokenizerData& d) { d.add_eos = !d.add_eos; }), HasSubstr("EOS ends"));
}

struct Damage {
  const char* name;
  void (*apply)(TokenizerData&);
  ErrorCode code;
  const char* field;
};

TEST(Tokenizer, WrongDataIsRefusedByTheNameOfItsKey) {
  const Damage cases[] = {
      {"no tokens", [](TokenizerData& d) { d.tokens.clear(), d.types.clear(); }, ErrorCode::corrupt,
       "tokens"},
      {"a type short", [](TokenizerData& d) { d.types.pop_back(); }, ErrorCode::corrupt,
       "token_type"},
      {"long token", [](TokenizerData& d) { d.tokens[5] = std::string(5000, 'x'); },
       ErrorCode::corrupt, "tokens"},
      {"bos too large", [](TokenizerData& d) { d.bos = 512; }, ErrorCode::corrupt, "bos_token_id"},
      {"bos below -1", [](TokenizerData& d) { d.bos = -2; }, ErrorCode::corrupt, "bos_token_id"},
      {"eos too large", [](TokenizerData& d) { d.eos = 1 << 30; }, ErrorCode::corrupt,
       "eos_token_id"},
      {"merge without pair", [](TokenizerData& d) { d.merges[3] = "th"; }, ErrorCode::corrupt,
       "merges"},
      {"empty merge", [](TokenizerData& d) { d.merges[3] = ""; }, ErrorCode::corrupt, "merges"},
      {"merge of half a pair", [](TokenizerData& d) { d.merges[3] = "t "; }, ErrorCode::corrupt,
       "merges"},
      {"merge of unknown tokens", [](TokenizerData& d) { d.merges[3] = "q z"; }, ErrorCode::corrupt,
       "merges"},
      {"unknown rule", [](TokenizerData& d) { d.pre = "tekken"; }, ErrorCode::unsupported, "pre"},
  };
  for (const Damage& damage : cases) {
    TokenizerData data = tiny_data("smollm");
    damage.apply(data);
    const auto result = Tokenizer::create(std::move(data));
    ASSERT_FALSE(result.ok()) << damage.name;
    EXPECT_EQ(result.error().code, damage.code) << damage.name;
    EXPECT_THAT(result.error().field, HasSubstr(damage.field)) << damage.name;
  }
}

TEST(Tokenizer, TheUnsupportedRuleIsNamedInTheError) {
  TokenizerData data = tiny_data("tekken");
  const auto result = Tokenizer::create(std::move(data));
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("tekken"));
}

}  // namespace
}  // namespace outrider::model
