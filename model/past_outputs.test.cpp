#include "model/past_outputs.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "base/hash.hpp"

namespace outrider::model {
namespace {

using Text = std::vector<int32_t>;

const BlockId k_one = sha256("one");
const BlockId k_other = sha256("other");

Text count_from(int32_t first, size_t length) {
  Text text(length);
  std::iota(text.begin(), text.end(), first);
  return text;
}

Text drafted(PastOutputs& outputs, const BlockId& scope, const Text& end, uint32_t depth) {
  std::vector<HintBranch> branches;
  Text out;
  if (outputs.draft(scope, end, depth, branches)) {
    for (const HintBranch& branch : branches) out.push_back(branch.token);
  }
  return out;
}

TEST(PastOutputs, ATextGoesOnAsAnEarlierOneDid) {
  PastOutputs outputs(1000, 10'000);
  outputs.add(k_one, count_from(0, 20));
  EXPECT_EQ(drafted(outputs, k_one, {99, 4, 5, 6}, 3), (Text{7, 8, 9}));
  EXPECT_EQ(drafted(outputs, k_one, {99, 17, 18, 19}, 3), Text()) << "there it ended";
}

TEST(PastOutputs, ScopesSeeNothingOfEachOther) {
  PastOutputs outputs(1000, 10'000);
  outputs.add(k_one, count_from(0, 20));
  outputs.add(k_other, count_from(100, 20));
  EXPECT_EQ(drafted(outputs, k_other, {4, 5, 6}, 3), Text());
  EXPECT_EQ(drafted(outputs, k_other, {104, 105, 106}, 1), Text{107});
}

TEST(PastOutputs, AScopeKeepsItsLastTexts) {
  PastOutputs outputs(100, 10'000);
  uint32_t found = 0;
  for (int32_t i = 0; i < 50; ++i) {
    outputs.add(k_one, count_from(100 * i, 20));
    EXPECT_LE(outputs.size(), 100u);
    for (int32_t kept = std::max(0, i - 1); kept <= i; ++kept) {
      const int32_t at = 100 * kept;
      found += drafted(outputs, k_one, {at, at + 1, at + 2}, 1) == Text{at + 3} ? 1 : 0;
    }
  }
  EXPECT_GE(found, 90u) << "of 99: a place of the table has room for one";
  EXPECT_EQ(drafted(outputs, k_one, {0, 1, 2}, 1), Text());
}

TEST(PastOutputs, OfLongTextsTheEndIsKept) {
  PastOutputs outputs(100, 10'000);
  outputs.add(k_one, count_from(0, 5000));
  EXPECT_LE(outputs.size(), 100u);
  EXPECT_EQ(drafted(outputs, k_one, {4990, 4991, 4992}, 1), Text{4993});
}

TEST(PastOutputs, TheScopeUsedLeastRecentlyGoesFirst) {
  PastOutputs outputs(100, 60);
  outputs.add(k_one, count_from(0, 20));
  outputs.add(k_other, count_from(100, 20));
  EXPECT_EQ(drafted(outputs, k_one, {0, 1, 2}, 1), Text{3});
  outputs.add(sha256("third"), count_from(200, 20));
  EXPECT_EQ(drafted(outputs, k_one, {0, 1, 2}, 1), Text{3});
  EXPECT_EQ(drafted(outputs, k_other, {100, 101, 102}, 1), Text());
  EXPECT_LE(outputs.size(), 60u);
}

}  // namespace
}  // namespace outrider::model
