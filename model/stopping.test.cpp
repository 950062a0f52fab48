#include "model/stopping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "base/philox.hpp"
#include "model/tokenizer_tiny.test.hpp"

namespace outrider::model {
namespace {

struct Outcome {
  std::string text;
  std::optional<uint32_t> match;

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Looks at every end, every string and every start.
Outcome naive(const std::string& text, const std::vector<std::string>& stops, bool include,
              size_t first_end) {
  for (size_t end = first_end; end <= text.size(); ++end) {
    std::optional<uint32_t> best;
    for (uint32_t i = 0; i < stops.size(); ++i) {
      if (!text.substr(0, end).ends_with(stops[i])) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, include ? end : end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

std::string random_word(Random& random, uint32_t longest) {
  std::string out;
  for (uint32_t i = 1 + random.below(longest); i > 0; --i) out += "ab"[random.below(2)];
  return out;
}

std::string run(StopMatcher& matcher, std::string_view text) {
  return matcher.push(text) + matcher.finish();
}

TEST(StopMatcher, TextWithoutStopStringsPassesAtOnce) {
  StopMatcher matcher({}, false);
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, ABeginningIsHeldBackUntilItCannotBecomeAStopString) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.push("a ST"), "a ");
  EXPECT_EQ(matcher.push("O"), "");
  EXPECT_EQ(matcher.push("x"), "STOx");
  EXPECT_EQ(matcher.push("STO"), "");
  EXPECT_EQ(matcher.finish(), "STO");
  EXPECT_FALSE(matcher.match());
}

TEST(StopMatcher, NothingOfTheMatchOrBehindItComesOut) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.push("go ST"), "go ");
  EXPECT_EQ(matcher.push("OP more"), "");
  EXPECT_EQ(matcher.match(), 0u);
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, TheMatchIsIncludedWhenAsked) {
  StopMatcher matcher({"STOP"}, true);
  EXPECT_EQ(run(matcher, "go STOP more"), "go STOP");
}

TEST(StopMatcher, TheEarliestEndWinsThenTheEarliestStartThenTheLowestIndex) {
  StopMatcher earliest({"bcd", "bc"}, false);
  EXPECT_EQ(run(earliest, "abcd"), "a");
  EXPECT_EQ(earliest.match(), 1u);
  StopMatcher longest({"c", "bc"}, false);
  EXPECT_EQ(run(longest, "abc"), "a");
  EXPECT_EQ(longest.match(), 1u);
  StopMatcher lowest({"x", "bc", "bc"}, false);
  EXPECT_EQ(run(lowest, "abc"), "a");
  EXPECT_EQ(lowest.match(), 1u);
}

TEST(StopMatcher, CharactersOfManyBytesAreNeverCut) {
  StopMatcher matcher({"\u00E9!"}, false);
  EXPECT_EQ(matcher.push("\u00E8"), "\u00E8");  // shares the first byte
  EXPECT_EQ(matcher.push("\u00E9"), "");
  EXPECT_EQ(matcher.push("\u00E9"), "\u00E9");
  EXPECT_EQ(matcher.finish(), "\u00E9");
}

TEST(StopMatcher, AgreesWithANaiveSearchHoweverTheTextIsCut) {
  constexpr uint64_t k_seed = 5;
  Random random(k_seed);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t i = random.below(5); i > 0; --i) stops.push_back(random_word(random, 6));
    const std::string text = random_word(random, 40);
    const bool include = random.below(2) == 0;
    const size_t allowed_from = random.below(3) == 0 ? random.below(20) : 0;
    StopMatcher matcher(stops, include);
    std::string joined;
    size_t at = 0;
    size_t first_end = 0;  // of the first push that may stop
    while (at < text.size()) {
      const size_t size = std::min<size_t>(1 + random.below(6), text.size() - at);
      const bool may_stop = at >= allowed_from;
      if (!may_stop) first_end = at + size + 1;
      joined += matcher.push(std::string_view(text).substr(at, size), may_stop);
      at += size;
      // What is out is certain: a prefix of the answer.
      const Outcome expected = naive(text, stops, include, first_end);
      if (may_stop) {
        ASSERT_TRUE(expected.text.starts_with(joined)) << "seed " << k_seed << " round " << round;
      }
    }
    joined += matcher.finish();
    ASSERT_EQ((Outcome{joined, matcher.match()}), naive(text, stops, include, first_end))
        << "seed " << k_seed << " round " << round << " text " << text;
  }
}

TEST(StopMatcher, HoldsBackNoMoreThanTheLongestBeginning) {
  constexpr uint64_t k_seed = 6;
  Random random(k_seed);
  for (int round = 0; round < 5000; ++round) {
    const std::vector<std::string> stops = {random_word(random, 6) + "c"};
    const std::string text = random_word(random, 30);
    StopMatcher matcher(stops, false);
    size_t held = 0;
    for (size_t size = 1; size < stops[0].size(); ++size) {
      if (text.ends_with(stops[0].substr(0, size))) held = size;
    }
    ASSERT_EQ(matcher.push(text).size(), text.size() - held) << "seed " << k_seed << ": " << text;
  }
}

TEST(StopMatcher, ACopyGoesOnIndependently) {
  StopMatcher first({"STOP"}, false);
  first.push("ST");
  StopMatcher second = first;
  EXPECT_EQ(first.push("OP"), "");
  EXPECT_TRUE(first.match());
  EXPECT_EQ(second.push("AY"), "STAY");
  EXPECT_FALSE(second.match());
}

TEST(TextStream, AStopStringAcrossTokensEndsTheText) {
  const auto tokenizer = tiny_tokenizer("smollm");
  TextStream stream(tokenizer, {.stop_strings = {"river t"}});
  std::string text;
  for (const int32_t id : tokenizer->encode("a small river that ran")) text += stream.push(id);
  EXPECT_EQ(text + stream.finish(), "a small ");
  EXPECT_EQ(stream.stop_string(), 0u);
}

TEST(TextStream, AStopStringInsideTheFirstTokensDoesNotCount) {
  const auto tokenizer = tiny_tokenizer("smollm");
  const std::string text = "xyz xyz";
  const auto ids = tokenizer->encode(text);
  // The token that completes the first "yz", counted from 1.
  uint32_t completing = 0;
  for (std::string so_far; so_far.find("yz") == std::string::npos; ++completing) {
    so_far += tokenizer->token_bytes(ids[completing]);
  }
  for (uint32_t min_tokens = 0; min_tokens <= ids.size() + 1; ++min_tokens) {
    TextStream stream(tokenizer, {.min_tokens = min_tokens, .stop_strings = {"yz"}});
    std::string out;
    for (const int32_t id : ids) out += stream.push(id);
    out += stream.finish();
    const std::string expected = min_tokens <= completing   ? "x"
                                 : min_tokens <= ids.size() ? "xyz x"
                                                            : text;
    EXPECT_EQ(out, expected) << "min_tokens " << min_tokens;
  }
}

TEST(TextStream, SpecialTokensAreInvisibleToStopStringsUnlessShown) {
  const auto tokenizer = tiny_tokenizer("smollm");
  const auto ids = tokenizer->encode("a<|im_end|>b", {.add_special = false});
  const auto stops_at = [&](const std::string& stop, bool skip) {
    TextStream stream(tokenizer, {.stop_strings = {stop}, .skip_special_tokens = skip});
    for (const int32_t id : ids) stream.push(id);
    return stream.stop_string().has_value();
  };
  EXPECT_TRUE(stops_at("ab", true));
  EXPECT_FALSE(stops_at("ab", false));
  EXPECT_TRUE(stops_at("<|im_end|>", false));
  EXPECT_FALSE(stops_at("<|im_end|>", true));
}

}  // namespace
}  // namespace outrider::model
