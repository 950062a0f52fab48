#include "actors/draft_tree.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/philox.hpp"

namespace outrider::actors {
namespace {

using Leaves = std::vector<DraftTree::Id>;
using Path = std::vector<int32_t>;

Leaves best(const DraftTree& tree, uint32_t count, double least = 0, uint32_t depth = 99) {
  Leaves out;
  tree.best_leaves(count, depth, least, out);
  return out;
}

Path path(const DraftTree& tree, DraftTree::Id id) {
  Path out;
  tree.path(id, out);
  return out;
}

/// The paths of all hints.
std::vector<Path> hinted(const DraftTree& tree) {
  std::vector<Path> paths;
  for (const schema::DraftBranch& branch : tree.branches()) {
    Path whole = branch.parent < 0 ? Path{} : paths.at(static_cast<size_t>(branch.parent));
    whole.push_back(branch.token);
    paths.push_back(std::move(whole));
  }
  return paths;
}

TEST(DraftTree, GrowsWhereItIsMostProbable) {
  DraftTree tree;
  EXPECT_EQ(best(tree, 5), Leaves{tree.root()});
  const auto a = tree.grow(tree.root(), std::vector<DraftGuess>{{1, 0.6f}, {2, 0.3f}});
  const auto b = tree.grow(a, std::vector<DraftGuess>{{3, 0.9f}, {4, 0.05f}});
  // 0.54, 0.3, 0.03.
  const Leaves leaves = best(tree, 9);
  ASSERT_EQ(leaves.size(), 3u);
  EXPECT_EQ(path(tree, leaves[0]), (Path{1, 3}));
  EXPECT_EQ(path(tree, leaves[1]), (Path{2}));
  EXPECT_EQ(path(tree, leaves[2]), (Path{1, 4}));
  EXPECT_EQ(leaves[0], b);
  EXPECT_EQ(best(tree, 1), Leaves{b});
  EXPECT_EQ(best(tree, 9, 0.1).size(), 2u);
  EXPECT_EQ(best(tree, 9, 0, 2), Leaves{leaves[1]}) << "not deeper than that";
  EXPECT_EQ(tree.common_depth(leaves[0], leaves[2]), 1u);
  EXPECT_EQ(tree.common_depth(leaves[0], leaves[1]), 0u);
  EXPECT_EQ(tree.depth(leaves[2]), 2u);
}

TEST(DraftTree, OtherGuessesAreHintsOnceTheyAreFollowed) {
  DraftTree tree;
  tree.grow(tree.root(), std::vector<DraftGuess>{{1, 0.6f}, {2, 0.3f}});
  EXPECT_EQ(hinted(tree), (std::vector<Path>{{1}}));
  const auto other = best(tree, 2)[1];
  tree.grow(other, std::vector<DraftGuess>{{5, 0.5f}});
  EXPECT_EQ(hinted(tree), (std::vector<Path>{{1}, {2}, {2, 5}}));
  EXPECT_EQ(tree.branches()[2].confidence, 127);
}

TEST(DraftTree, ACommitKeepsWhatFollowsIt) {
  DraftTree tree;
  const auto a = tree.grow(tree.root(), std::vector<DraftGuess>{{1, 0.5f}, {2, 0.3f}});
  const auto b = tree.grow(a, std::vector<DraftGuess>{{3, 0.5f}});
  tree.commit(1);
  EXPECT_EQ(tree.root(), a);
  EXPECT_TRUE(tree.holds(b));
  EXPECT_EQ(tree.depth(b), 1u);
  EXPECT_EQ(best(tree, 9, 0.5), Leaves{b}) << "more probable than before";
  EXPECT_EQ(hinted(tree), (std::vector<Path>{{3}}));
  tree.commit(9);
  EXPECT_FALSE(tree.holds(a));
  EXPECT_FALSE(tree.holds(b));
  EXPECT_EQ(best(tree, 9), Leaves{tree.root()});
  EXPECT_TRUE(tree.branches().empty());
}

/// Against a map of paths.
TEST(DraftTree, RandomHistoriesAgreeWithANaiveOne) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    DraftTree tree;
    std::map<Path, double> grown;  // With their probability behind the root.
    std::map<Path, double> leaves = {{{}, 1.0}};
    for (int i = 0; i < 60; ++i) {
      if (random.chance(0.3f)) {
        const auto token = static_cast<int32_t>(random.below(4));
        const auto move = [token](std::map<Path, double>& paths) {
          std::map<Path, double> moved;
          for (const auto& [whole, probability] : paths) {
            if (!whole.empty() && whole[0] == token) {
              moved[Path(whole.begin() + 1, whole.end())] = probability;
            }
          }
          paths = moved;
        };
        move(grown);
        move(leaves);
        if (grown.empty() && leaves.empty()) leaves = {{{}, 1.0}};
        tree.commit(token);
        const double scale = 1 / (grown.contains({}) ? grown.at({}) : leaves.at({}));
        for (auto* paths : {&grown, &leaves}) {
          for (auto& [whole, probability] : *paths) probability *= scale;
        }
      } else {
        const Leaves chosen = best(tree, 1 + random.below(4), 0.01, 8);
        for (const DraftTree::Id id : chosen) {
          const Path at = path(tree, id);
          ASSERT_TRUE(leaves.contains(at));
          for (const auto& leaf : leaves) {
            const bool is_chosen = std::any_of(chosen.begin(), chosen.end(), [&](DraftTree::Id c) {
              return path(tree, c) == leaf.first;
            });
            if (!is_chosen && leaf.first.size() < 8) {
              EXPECT_LE(leaf.second, leaves.at(at) + 1e-9);
            }
          }
        }
        const DraftTree::Id id = chosen.empty() ? tree.root() : chosen.front();
        if (chosen.empty()) continue;
        const Path at = path(tree, id);
        std::vector<DraftGuess> guesses;
        for (int32_t token = 0; token <= static_cast<int32_t>(random.below(4)); ++token) {
          guesses.push_back({token, 0.1f + 0.2f * random.uniform()});
          Path child = at;
          child.push_back(token);
          leaves[child] = leaves.at(at) * double{guesses.back().probability};
        }
        grown[at] = leaves.at(at);
        leaves.erase(at);
        tree.grow(id, guesses);
      }
      ASSERT_LE(tree.branches().size(), model::k_hint_nodes_max);
      EXPECT_EQ(best(tree, 1000).size(), leaves.size());
    }
  }
}

TEST(DraftTree, NeverOutgrowsATrie) {
  DraftTree tree;
  Leaves leaves;
  for (int i = 0; i < 400; ++i) {
    leaves = best(tree, 40);
    for (const DraftTree::Id id : leaves) {
      tree.grow(id, std::vector<DraftGuess>{{1, 0.4f}, {2, 0.3f}, {3, 0.2f}});
    }
  }
  EXPECT_TRUE(leaves.empty());
  EXPECT_LE(tree.branches().size(), model::k_hint_nodes_max);
  EXPECT_GT(tree.branches().size(), model::k_hint_nodes_max - 4);
}

}  // namespace
}  // namespace outrider::actors
