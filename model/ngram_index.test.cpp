#include "model/ngram_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/philox.hpp"

namespace outrider::model {
namespace {

using Text = std::vector<int32_t>;

Text drafted(const NgramIndex& index, uint32_t depth) {
  const auto match = index.find(index.tokens());
  if (!match) return {};
  std::vector<HintBranch> branches;
  index.draft(*match, depth, branches);
  Text out;
  for (size_t i = 0; i < branches.size(); ++i) {
    EXPECT_EQ(branches[i].parent, static_cast<int32_t>(i) - 1);
    out.push_back(branches[i].token);
  }
  return out;
}

TEST(NgramIndex, GoesOnAsTheTextDidTheLastTime) {
  NgramIndex index;
  index.append(Text{1, 2, 10, 11, 9, 1, 2, 20, 21, 22, 8, 1});
  EXPECT_TRUE(drafted(index, 4).empty()) << "one token says too little";
  index.append(2);
  EXPECT_EQ(drafted(index, 3), (Text{20, 21, 22}));
}

TEST(NgramIndex, ALongerMatchIsTakenBeforeALaterOne) {
  NgramIndex index;
  index.append(Text{4, 5, 1, 2, 3, 50, 7, 1, 2, 3, 60, 4, 5, 1, 2, 3});
  EXPECT_EQ(index.find(index.tokens()), (NgramIndex::Match{5, 5}));
  EXPECT_EQ(drafted(index, 1), (Text{50}));
}

TEST(NgramIndex, ALoopGoesOn) {
  NgramIndex index;
  index.append(Text{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3});
  EXPECT_EQ(drafted(index, 9), (Text{4, 1, 2, 3, 4, 1, 2, 3, 4}));
}

TEST(NgramIndex, NoDraftGoesFromOneTextIntoAnother) {
  NgramIndex index;
  index.append(Text{1, 2, 3, 4});
  index.separate();
  index.append(Text{5, 6, 1, 2, 3});
  EXPECT_EQ(drafted(index, 5), (Text{4}));
  NgramIndex corpus;
  corpus.append(Text{1, 2});
  corpus.separate();
  corpus.append(Text{3, 4});
  EXPECT_FALSE(corpus.find(Text{1, 2, 3})) << "these stand in no text, nor do the last two";
}

TEST(NgramIndex, EachMatchIsATrueOneAndFewAreMissed) {
  const uint64_t seed = 0x96;
  Random random(seed);
  NgramIndex index;
  size_t there = 0, found = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::span<const int32_t> text = index.tokens();
    const auto stood_before = [&](size_t n) {
      if (text.size() < n) return false;
      const auto last = text.last(n);
      return std::search(text.begin(), text.end() - 1, last.begin(), last.end()) != text.end() - 1;
    };
    const auto match = index.find(text);
    if (match) {
      ASSERT_LT(match->next, text.size()) << "seed " << seed;
      const auto before = text.subspan(match->next - match->length, match->length);
      ASSERT_TRUE(std::ranges::equal(before, text.last(match->length))) << "seed " << seed;
      ASSERT_GE(match->length, 2u);
    }
    there += stood_before(2) ? 1 : 0;
    found += match ? 1 : 0;
    index.append(static_cast<int32_t>(random.below(12)));
  }
  EXPECT_GT(there, 1000u);
  EXPECT_LE(found, there);
  EXPECT_GT(found * 100, there * 85) << found << " of " << there;
}

}  // namespace
}  // namespace outrider::model
