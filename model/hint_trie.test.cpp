#include "model/hint_trie.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>

#include "base/philox.hpp"

namespace outrider::model {
namespace {

using Path = std::vector<int32_t>;
using Steps = std::vector<HintTrie::Step>;

Steps best_path(const HintTrie& trie, uint32_t depth = 99) {
  Steps steps;
  trie.best_path(
      depth, [](HintSource, uint8_t confidence) { return float{1} * confidence; }, steps);
  return steps;
}

/// A chain of tokens of one confidence.
std::vector<HintBranch> chain(const Path& tokens, uint8_t confidence) {
  std::vector<HintBranch> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    out.push_back({static_cast<int32_t>(i) - 1, tokens[i], confidence});
  }
  return out;
}

const Path k_text = {5, 6, 7};
HintTrie trie_of_text() {
  return {3, text_hash(k_empty_text, k_text)};
}
uint64_t hash_after(const Path& more) {
  return text_hash(text_hash(k_empty_text, k_text), more);
}

TEST(HintTrie, ThePathOfHighestConfidenceIsTaken) {
  HintTrie trie = trie_of_text();
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({10, 11}, 100), HintSource{1}}),
            HintOutcome::used);
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({20, 21, 22}, 150), HintSource{2}}),
            HintOutcome::used);
  EXPECT_EQ(best_path(trie),
            (Steps{{20, 150, HintSource{2}}, {21, 150, HintSource{2}}, {22, 150, HintSource{2}}}));
  EXPECT_EQ(best_path(trie, 1), (Steps{{20, 150, HintSource{2}}}));
  trie.commit(10);
  EXPECT_EQ(best_path(trie), (Steps{{11, 100, HintSource{1}}}));
  EXPECT_EQ(trie.size(), 1u);
  trie.commit(99);
  EXPECT_TRUE(best_path(trie).empty());
  EXPECT_EQ(trie.hash(), hash_after({10, 99}));
}

std::shared_ptr<const DraftDistribution> odds(int32_t token, uint16_t weight = 5) {
  const auto rest = static_cast<uint16_t>(k_draft_weights - weight);
  return std::make_shared<DraftDistribution>(DraftDistribution{{{token, weight}, {900, rest}}});
}

Steps drawn_path(const HintTrie& trie, uint32_t depth = 99) {
  Steps steps;
  trie.drawn_path(depth, steps);
  return steps;
}

TEST(HintTrie, ThePathThatWasDrawnIsTheFirstToCome) {
  HintTrie trie = trie_of_text();
  trie.insert({3, hash_after({}), chain({10, 11}, 250), HintSource{0}});
  EXPECT_TRUE(drawn_path(trie).empty());
  const std::vector<HintBranch> first = {{-1, 20, 1, odds(20)}, {0, 21, 1, odds(21)}};
  const std::vector<HintBranch> second = {{-1, 30, 200, odds(30)}, {0, 31, 200, odds(31)}};
  // Expected by the text before anything was drawn: its place among siblings says nothing.
  const std::vector<HintBranch> third = {{-1, 10, 9, odds(10)}};
  for (const auto& branches : {first, second, third}) {
    EXPECT_EQ(trie.insert({3, hash_after({}), branches, HintSource{2}}), HintOutcome::used);
  }
  EXPECT_EQ(drawn_path(trie), (Steps{{.token = 20, .drawn_from = first[0].drawn_from},
                                     {.token = 21, .drawn_from = first[1].drawn_from}}));
  trie.commit(20);
  EXPECT_EQ(drawn_path(trie), (Steps{{.token = 21, .drawn_from = first[1].drawn_from}}));
  EXPECT_TRUE(drawn_path(trie, 0).empty());
  // Who says another time what was drawn there does not change what it was drawn from.
  const std::vector<HintBranch> again = {{-1, 21, 255, odds(21, 70)}};
  trie.insert({4, hash_after({20}), again, HintSource{2}});
  EXPECT_EQ(drawn_path(trie)[0].drawn_from, first[1].drawn_from);
}

TEST(HintTrie, WhatWasDrawnIsVerifiedWhetherOrNotTheTextExpectsItToo) {
  for (const int32_t drawn : {10, 20}) {
    HintTrie trie = trie_of_text();
    trie.insert({3, hash_after({}), chain({10, 11}, 250), HintSource{0}});
    const std::vector<HintBranch> draw = {{-1, drawn, 9, odds(drawn)}};
    trie.insert({3, hash_after({}), draw, HintSource{2}});
    ASSERT_EQ(drawn_path(trie).size(), 1u) << drawn << ": no hint of the text follows as drawn";
    EXPECT_EQ(drawn_path(trie)[0].token, drawn);
  }
  // Where one of them would find no room neither is; where there is room for one more both are.
  for (const size_t room : {0, 1}) {
    for (const int32_t drawn : {10, 800}) {
      HintTrie trie = trie_of_text();
      std::vector<HintBranch> siblings;
      for (size_t i = 0; i < k_hint_siblings_max - room; ++i) {
        siblings.push_back({-1, 10 + static_cast<int32_t>(i), 100});
      }
      trie.insert({3, hash_after({}), siblings, HintSource{0}});
      const std::vector<HintBranch> draw = {{-1, drawn, 9, odds(drawn)}};
      trie.insert({3, hash_after({}), draw, HintSource{2}});
      EXPECT_EQ(drawn_path(trie).size(), room) << drawn;
    }
  }
}

TEST(HintTrie, NorIsItWhereNoMoreTokensFitAnywhere) {
  for (const uint32_t room : {0u, 1u}) {
    for (const int32_t drawn : {10, 800}) {  // One that is there, and one that would be new.
      HintTrie trie = trie_of_text();
      for (int32_t i = 0; trie.size() < k_hint_nodes_max - room; ++i) {
        ASSERT_EQ(trie.insert({3, hash_after({}), chain({10 + i / 30, i}, 1), HintSource{0}}),
                  HintOutcome::used);
      }
      const std::vector<HintBranch> draw = {{-1, drawn, 9, odds(drawn)}};
      trie.insert({3, hash_after({}), draw, HintSource{2}});
      EXPECT_EQ(drawn_path(trie).size(), room) << drawn;
    }
  }
}

TEST(HintTrie, ATokenThatWasNotDrawnFromWhatItSaysIsMalformed) {
  HintTrie trie = trie_of_text();
  const std::vector<HintBranch> wrong = {{-1, 20, 1, odds(20)}, {0, 22, 1, odds(21)}};
  EXPECT_EQ(trie.insert({3, hash_after({}), wrong, HintSource{2}}), HintOutcome::malformed);
  EXPECT_EQ(trie.size(), 0u);
}

TEST(HintTrie, LateHintsCountForWhatIsNotCommittedYet) {
  HintTrie trie = trie_of_text();
  trie.commit(10);
  trie.commit(11);
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({10, 11, 12}, 9), HintSource{0}}),
            HintOutcome::used);
  EXPECT_EQ(best_path(trie), (Steps{{12, 9, HintSource{0}}}));
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({10, 11}, 9), HintSource{0}}), HintOutcome::late);
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({10, 50, 51}, 9), HintSource{0}}),
            HintOutcome::mismatch);
  EXPECT_EQ(trie.insert({4, hash_after({11}), chain({11}, 9), HintSource{0}}),
            HintOutcome::mismatch);
  EXPECT_EQ(trie.insert({1, 0, chain({6}, 9), HintSource{0}}), HintOutcome::absent)
      << "before it began";
}

TEST(HintTrie, AHintMayBeLateByAsManyTokensAsPathsAreDeep) {
  HintTrie trie = trie_of_text();
  Path more;
  for (uint32_t i = 0; i < k_hint_depth_max; ++i) {
    more.push_back(10 + static_cast<int32_t>(i));
    trie.commit(more.back());
  }
  more.push_back(99);
  EXPECT_EQ(trie.insert({3, hash_after({}), chain(more, 9), HintSource{0}}), HintOutcome::used);
  EXPECT_EQ(best_path(trie), (Steps{{99, 9, HintSource{0}}}));
  EXPECT_EQ(trie.insert({3, hash_after({5}), chain(more, 9), HintSource{0}}), HintOutcome::mismatch)
      << "another text of that length";
  trie.commit(99);
  EXPECT_EQ(trie.insert({3, hash_after({}), chain(more, 9), HintSource{0}}), HintOutcome::absent)
      << "no more of them are kept";
}

TEST(HintTrie, HintsThatRunAheadContinueHints) {
  HintTrie trie = trie_of_text();
  EXPECT_EQ(trie.insert({4, hash_after({10}), chain({11}, 9), HintSource{0}}), HintOutcome::absent);
  trie.insert({3, hash_after({}), chain({10}, 9), HintSource{0}});
  EXPECT_EQ(trie.insert({4, hash_after({10}), chain({11}, 9), HintSource{0}}), HintOutcome::used);
  EXPECT_EQ(trie.insert({4, hash_after({99}), chain({11}, 9), HintSource{0}}), HintOutcome::absent);
  EXPECT_EQ(best_path(trie).size(), 2u);
}

TEST(HintTrie, MalformedHintsChangeNothing) {
  HintTrie trie = trie_of_text();
  const HintBranch forward[] = {{1, 10, 9}, {-1, 11, 9}};
  const HintBranch negative[] = {{-1, 10, 9}, {0, -2, 9}};
  const HintBranch own[] = {{-1, 10, 9}, {1, 11, 9}};
  const HintBranch below[] = {{-2, 10, 9}};
  const std::vector<HintBranch> endless(k_hint_nodes_max + 1, HintBranch{-1, 1, 1});
  EXPECT_EQ(trie.insert({3, hash_after({}), forward, HintSource{0}}), HintOutcome::malformed);
  EXPECT_EQ(trie.insert({3, hash_after({}), negative, HintSource{0}}), HintOutcome::malformed);
  EXPECT_EQ(trie.insert({3, hash_after({}), own, HintSource{0}}), HintOutcome::malformed);
  EXPECT_EQ(trie.insert({3, hash_after({}), below, HintSource{0}}), HintOutcome::malformed);
  EXPECT_EQ(trie.insert({3, hash_after({}), endless, HintSource{0}}), HintOutcome::malformed);
  EXPECT_EQ(trie.size(), 0u);
}

TEST(HintTrie, EachSourceOfATokenKeepsItsOwnClaim) {
  HintTrie trie = trie_of_text();
  trie.insert({3, hash_after({}), chain({10}, 100), HintSource{1}});
  trie.insert({3, hash_after({}), chain({10}, 250), HintSource{2}});
  trie.insert({3, hash_after({}), chain({10}, 50), HintSource{1}});
  trie.insert({3, hash_after({}), chain({20, 21}, 0), HintSource{0}});
  std::vector<std::tuple<int32_t, size_t, int>> seen;
  trie.for_each_next([&](int32_t token, HintSource source, uint8_t confidence, bool is_drawn) {
    EXPECT_FALSE(is_drawn);
    seen.emplace_back(token, static_cast<size_t>(source), confidence);
  });
  EXPECT_EQ(seen, (std::vector<std::tuple<int32_t, size_t, int>>{
                      {10, 1, 100}, {10, 2, 250}, {20, 0, 1}}));
  const std::vector<HintBranch> draw = {{-1, 20, 7, odds(20)}};
  trie.insert({3, hash_after({}), draw, HintSource{2}});
  int drawn = 0;
  trie.for_each_next([&](int32_t token, HintSource, uint8_t, bool is_drawn) {
    EXPECT_EQ(is_drawn, token == 20);
    drawn += is_drawn ? 1 : 0;
  });
  EXPECT_EQ(drawn, 2) << "for each source of it";
  Steps steps;
  trie.best_path(
      1, [](HintSource source, uint8_t) { return source == HintSource{1} ? 0.9f : 0.1f; }, steps);
  EXPECT_EQ(steps, (Steps{{10, 100, HintSource{1}}}));
}

TEST(HintTrie, RoomIsBoundedInTokensAndDepth) {
  HintTrie trie = trie_of_text();
  EXPECT_EQ(
      trie.insert({3, hash_after({}), chain(Path(k_hint_depth_max + 5, 1), 9), HintSource{0}}),
      HintOutcome::used);
  EXPECT_EQ(trie.size(), k_hint_depth_max);
  for (int32_t i = 0; trie.size() < k_hint_nodes_max; ++i) {  // Few at each node.
    ASSERT_EQ(trie.insert({3, hash_after({}), chain({2 + i / 30, i}, 1), HintSource{0}}),
              HintOutcome::used);
  }
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({100'000}, 255), HintSource{0}}),
            HintOutcome::full);
  EXPECT_EQ(trie.insert({3, hash_after({}), chain({1}, 200), HintSource{0}}), HintOutcome::used);
  EXPECT_EQ(best_path(trie, 1), (Steps{{1, 200, HintSource{0}}}));
}

/// The same as lists of whole paths.
class NaiveTrie {
 public:
  struct Known {
    uint64_t arrived = 0;
    std::map<HintSource, uint8_t> claims = {};

    /// The most confident source, of several the first.
    std::pair<HintSource, uint8_t> best() const {
      return *std::max_element(claims.begin(), claims.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; });
    }
  };

  HintOutcome insert(const Path& text, const Path& base, const std::vector<HintBranch>& branches,
                     HintSource source) {
    if (!starts_with(base, text) && !starts_with(text, base)) return HintOutcome::mismatch;
    std::vector<Path> full;
    bool used = false, wrong = false;
    for (const HintBranch& branch : branches) {
      Path path = branch.parent < 0 ? base : full[static_cast<size_t>(branch.parent)];
      path.push_back(branch.token);
      full.push_back(path);
      if (starts_with(text, path)) continue;
      if (!starts_with(path, text)) {
        wrong = true;
        continue;
      }
      used = true;
      const auto [at, is_new] = known_.try_emplace(path);
      if (is_new) at->second.arrived = ++clock_;
      uint8_t& claim = at->second.claims[source];
      claim = std::max({claim, branch.confidence, uint8_t{1}});
    }
    return used ? HintOutcome::used : wrong ? HintOutcome::mismatch : HintOutcome::late;
  }
  bool knows(const Path& path) const { return known_.count(path) != 0; }
  void commit(const Path& text) {
    std::erase_if(known_, [&](const auto& entry) {
      return !starts_with(entry.first, text) || entry.first.size() == text.size();
    });
  }
  size_t size() const { return known_.size(); }
  Steps best_path(Path text) const {
    Steps out;
    for (;;) {
      const std::pair<const Path, Known>* best = nullptr;
      for (const auto& entry : known_) {
        if (entry.first.size() != text.size() + 1 || !starts_with(entry.first, text)) continue;
        if (best == nullptr || entry.second.best().second > best->second.best().second ||
            (entry.second.best().second == best->second.best().second &&
             entry.second.arrived < best->second.arrived)) {
          best = &entry;
        }
      }
      if (best == nullptr) return out;
      text = best->first;
      out.push_back({text.back(), best->second.best().second, best->second.best().first});
    }
  }

 private:
  static bool starts_with(const Path& path, const Path& prefix) {
    return path.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), path.begin());
  }
  std::map<Path, Known> known_;
  uint64_t clock_ = 0;
};

TEST(HintTrie, RandomHintsFareAsInANaiveTrie) {
  const char* wanted = std::getenv("OUTRIDER_FUZZ_OPERATIONS");
  const uint64_t operations = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 20'000;
  const uint64_t seed = 0x417;
  Random random(seed);
  Path text;
  HintTrie trie(0, k_empty_text);
  NaiveTrie naive;
  for (uint64_t i = 0; i < operations; ++i) {
    const std::string where = "operation " + std::to_string(i) + " seed " + std::to_string(seed);
    if (i % 200 == 199) {
      text.clear();
      trie = HintTrie(0, k_empty_text);
      naive = NaiveTrie();
    }
    if (random.below(3) == 0) {
      text.push_back(static_cast<int32_t>(random.below(3)));
      trie.commit(text.back());
      naive.commit(text);
    } else {
      // From a little before the end of the text, or from a token or two beyond it.
      const auto behind = std::min<size_t>(random.below(4), text.size());
      Path base(text.begin(), text.end() - static_cast<long>(behind));
      for (uint32_t more = random.below(3); behind == 0 && more > 0; --more) {
        base.push_back(static_cast<int32_t>(random.below(3)));
      }
      if (random.below(10) == 0 && !base.empty()) base.back() ^= 1;
      std::vector<HintBranch> branches;
      for (uint32_t n = 1 + random.below(6); n > 0; --n) {
        const auto before = static_cast<uint32_t>(branches.size());
        branches.push_back({static_cast<int32_t>(random.below(before + 1)) - 1,
                            static_cast<int32_t>(random.below(3)),
                            static_cast<uint8_t>(random.below(4))});
      }
      const auto source = static_cast<HintSource>(random.below(3));
      const auto got = trie.insert(
          {static_cast<uint32_t>(base.size()), text_hash(k_empty_text, base), branches, source});
      if (base.size() > text.size() && !naive.knows(base)) {
        ASSERT_EQ(got, HintOutcome::absent) << where;
      } else {
        ASSERT_EQ(got, naive.insert(text, base, branches, source)) << where;
      }
    }
    ASSERT_EQ(trie.length(), text.size()) << where;
    ASSERT_EQ(trie.hash(), text_hash(k_empty_text, text)) << where;
    ASSERT_EQ(trie.size(), naive.size()) << where;
    ASSERT_LT(trie.size(), k_hint_nodes_max) << where << ": choose operations that leave room";
    ASSERT_EQ(best_path(trie), naive.best_path(text)) << where;
  }
}

TEST(HintTrie, ANodeHasSoManyChildrenAtMost) {
  HintTrie trie(0, k_empty_text);
  std::vector<HintBranch> fan;
  for (int32_t token = 0; token < 200; ++token) fan.push_back({-1, token, 100});
  EXPECT_EQ(trie.insert({0, k_empty_text, fan}), HintOutcome::used);
  EXPECT_EQ(trie.size(), k_hint_siblings_max);
  const std::vector<HintBranch> more = {{-1, 500, 100}};
  EXPECT_EQ(trie.insert({0, k_empty_text, more}), HintOutcome::full);
}

}  // namespace
}  // namespace outrider::model
