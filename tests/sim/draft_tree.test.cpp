#include "tests/sim/draft_tree.hpp"

#include <gtest/gtest.h>

namespace outrider::sim {
namespace {

constexpr uint32_t k_request = 3;
constexpr uint32_t k_length = 10;
constexpr uint64_t k_hash = 77;

/// A tree and the target's trie of the same request.
class Pair {
 public:
  explicit Pair(double acceptance) : texts(1, acceptance, acceptance) {}

  void step(uint32_t rows) {
    tree.begin_step(rows);
    tree.end_step();
    const auto news = tree.take_news();
    if (news.empty()) return;
    const auto outcome = trie.insert({.base_length = tree.length(),
                                      .base_hash = tree.hash(),
                                      .branches = news,
                                      .source = model::HintSource::draft_model});
    EXPECT_EQ(outcome, model::HintOutcome::used);
  }
  /// A step of the target begins, with what is hinted at now.
  void begin(uint32_t depth) {
    path.clear();
    trie.best_path(depth, path);
  }
  /// It gives as many tokens as the path has right, and one more.
  uint32_t end() {
    std::vector<int32_t> tokens;
    do {
      tokens.push_back(texts.truth(k_request, trie.length()));
      trie.commit(tokens.back());
    } while (tokens.size() <= path.size() && path[tokens.size() - 1].token == tokens.back());
    tree.commit(tokens);
    EXPECT_EQ(tree.length(), trie.length());
    EXPECT_EQ(tree.hash(), trie.hash());
    return static_cast<uint32_t>(tokens.size());
  }
  uint32_t verify(uint32_t depth) {
    begin(depth);
    return end();
  }

  Texts texts;
  DraftTree tree{texts, k_request, k_length, k_hash};
  model::HintTrie trie{k_length, k_hash};
  std::vector<model::HintTrie::Step> path;
};

TEST(DraftTree, OneRowIsAChainOfFirstGuesses) {
  Pair pair(1.0);
  for (int i = 0; i < 5; ++i) pair.step(1);
  EXPECT_EQ(pair.trie.size(), 5u);
  EXPECT_EQ(pair.verify(4), 5u) << "all true, and the one behind them";
  EXPECT_EQ(pair.trie.size(), 0u);
  pair.step(1);
  EXPECT_EQ(pair.trie.size(), 1u);
}

TEST(DraftTree, MoreRowsFollowTheNextProbableGuesses) {
  Pair pair(0.5);
  pair.step(4);
  EXPECT_EQ(pair.trie.size(), 1u) << "there is one leaf in the first step";
  pair.step(4);
  // The four guesses are followed, the first of which is known already, each by its own first.
  EXPECT_EQ(pair.trie.size(), 1u + 3u + 4u);
}

TEST(DraftTree, WhatStillFitsIsKeptAndNotToldAgain) {
  Pair pair(1.0);
  for (int i = 0; i < 6; ++i) pair.step(1);
  EXPECT_EQ(pair.verify(1), 2u);
  EXPECT_EQ(pair.trie.size(), 4u);
  EXPECT_TRUE(pair.tree.take_news().empty());
  pair.step(1);
  EXPECT_EQ(pair.trie.size(), 5u) << "it goes on where it was";
}

/// Tokens of 300 steps of the target, during each of which the draft takes ten.
uint32_t ahead(uint32_t rows) {
  Pair pair(0.8);
  uint32_t tokens = 0;
  for (int round = 0; round < 300; ++round) {
    pair.begin(8);
    for (int i = 0; i < 10; ++i) pair.step(rows);
    tokens += pair.end();
  }
  return tokens;
}

TEST(DraftTree, BranchesHaveHintsInStoreWhereAChainHasNone) {
  EXPECT_GT(ahead(24), ahead(1) * 5 / 4);
}

TEST(DraftTree, IsNeverLargerThanTheTargetsTrie) {
  Pair pair(0.8);
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 12; ++i) pair.step(40);
    EXPECT_LE(pair.trie.size(), model::k_hint_nodes_max);
    EXPECT_GT(pair.trie.size(), model::k_hint_nodes_max / 4);
    pair.verify(8);
  }
}

}  // namespace
}  // namespace outrider::sim
