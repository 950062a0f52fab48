#include "model/past_outputs.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "base/hash.hpp"

namespace outrider::model {
namespace {

using Text = std::vector<int32_t>;

constexpr size_t k_much = size_t{1} << 20;
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
  PastOutputs outputs(1000, k_much);
  outputs.add(k_one, 1, count_from(0, 20));
  EXPECT_EQ(drafted(outputs, k_one, {99, 4, 5, 6}, 3), (Text{7, 8, 9}));
  EXPECT_EQ(drafted(outputs, k_one, {99, 17, 18, 19}, 3), Text()) << "there it ended";
}

TEST(PastOutputs, ScopesSeeNothingOfEachOther) {
  PastOutputs outputs(1000, k_much);
  outputs.add(k_one, 1, count_from(0, 20));
  outputs.add(k_other, 1, count_from(100, 20));
  EXPECT_EQ(drafted(outputs, k_other, {4, 5, 6}, 3), Text());
  EXPECT_EQ(drafted(outputs, k_other, {104, 105, 106}, 1), Text{107});
}

TEST(PastOutputs, AScopeKeepsItsLastTexts) {
  PastOutputs outputs(100, k_much);
  uint32_t found = 0;
  size_t bytes_of_ten = 0;
  for (int32_t i = 0; i < 50; ++i) {
    outputs.add(k_one, 1, count_from(100 * i, 20));
    if (i == 9) bytes_of_ten = outputs.bytes();
    if (i > 9) {
      EXPECT_LE(outputs.bytes(), 2 * bytes_of_ten);
    }
    for (int32_t kept = std::max(0, i - 1); kept <= i; ++kept) {
      const int32_t at = 100 * kept;
      found += drafted(outputs, k_one, {at, at + 1, at + 2}, 1) == Text{at + 3} ? 1 : 0;
    }
  }
  EXPECT_GE(found, 90u) << "of 99: a place of the table has room for one";
  EXPECT_EQ(drafted(outputs, k_one, {0, 1, 2}, 1), Text());
}

TEST(PastOutputs, OfLongTextsTheEndIsKept) {
  PastOutputs outputs(100, k_much);
  outputs.add(k_one, 1, count_from(0, 5000));
  EXPECT_LE(outputs.bytes(), 16'384u);
  EXPECT_EQ(drafted(outputs, k_one, {4990, 4991, 4992}, 1), Text{4993});
}

TEST(PastOutputs, TheScopeUsedLeastRecentlyGoesFirst) {
  PastOutputs alone(100, k_much);
  alone.add(k_one, 1, count_from(0, 20));
  const size_t two_scopes = 2 * alone.bytes();
  PastOutputs outputs(100, two_scopes);
  outputs.add(k_one, 1, count_from(0, 20));
  outputs.add(k_other, 1, count_from(100, 20));
  EXPECT_EQ(drafted(outputs, k_one, {0, 1, 2}, 1), Text{3});
  outputs.add(sha256("third"), 1, count_from(200, 20));
  EXPECT_EQ(drafted(outputs, k_one, {0, 1, 2}, 1), Text{3});
  EXPECT_EQ(drafted(outputs, k_other, {100, 101, 102}, 1), Text());
  EXPECT_LE(outputs.bytes(), two_scopes);
}

TEST(PastOutputs, ManyScopesOfAWordStayWithinTheirMemory) {
  PastOutputs outputs(65'536, k_much);
  for (int32_t i = 0; i < 10'000; ++i) {
    outputs.add(sha256(std::to_string(i)), 1, count_from(i, 1));
    ASSERT_LE(outputs.bytes(), k_much);
  }
  EXPECT_GT(outputs.bytes(), k_much / 2);
  outputs.add(k_one, 1, count_from(0, 20));
  EXPECT_EQ(drafted(outputs, k_one, {4, 5, 6}, 1), Text{7});
}

TEST(PastOutputs, WhatAnOwnerHadIsForgotten) {
  PastOutputs outputs(1000, k_much);
  outputs.add(k_one, 1, count_from(0, 20));
  outputs.add(k_other, 2, count_from(100, 20));
  outputs.forget(1);
  EXPECT_EQ(drafted(outputs, k_one, {4, 5, 6}, 1), Text());
  EXPECT_EQ(drafted(outputs, k_other, {104, 105, 106}, 1), Text{107});
  outputs.forget(std::nullopt);
  EXPECT_EQ(outputs.bytes(), 0u);
}

TEST(PastOutputs, AnOwnerOfManyScopesFlushesItsOwn) {
  PastOutputs outputs(1000, size_t{64} << 10);
  outputs.add(k_one, 1, count_from(0, 20));
  for (int32_t i = 0; i < 500; ++i) {
    outputs.add(sha256(std::to_string(i)), 2, count_from(100 * i, 20));
  }
  EXPECT_LE(outputs.bytes(), size_t{64} << 10);
  EXPECT_EQ(drafted(outputs, k_one, {4, 5, 6}, 1), Text{7});
}

}  // namespace
}  // namespace outrider::model
