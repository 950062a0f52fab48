#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/hint_trie.hpp"
#include "schema/draft_messages.hpp"

namespace outrider::actors {

/// What a draft takes a text to go on with.
struct DraftGuess {
  int32_t token = 0;
  float probability = 0;  ///< That it does, behind the text before it.
  std::vector<std::pair<int32_t, uint16_t>> drawn_from = {};
};

/// What a draft expects behind a committed text: a tree of guesses that grows ahead of the
/// verifier. Of each node's guesses the first is a hint; another is one once it has guesses of its
/// own, for until then nothing is known of what comes behind it. Plain value.
class DraftTree {
 public:
  /// Of a node, for as long as the tree holds it.
  using Id = uint32_t;

  Id root() const { return nodes_.front().id; }
  bool holds(Id id) const;
  /// Tokens behind the committed text.
  uint32_t depth(Id id) const;
  /// Of the deepest node that two paths share.
  uint32_t common_depth(Id a, Id b) const;
  /// The tokens from the root to a node, appended.
  void path(Id id, std::vector<int32_t>& out) const;

  /// The text goes on with `token`: what follows it stays, all else goes.
  void commit(int32_t token);
  /// Nodes that have no guesses yet, the most probable first: `count` at most, less than `depth`
  /// tokens deep, of at least that probability behind the committed text. None where the hints
  /// would outgrow the target's trie.
  void best_leaves(uint32_t count, uint32_t depth, double probability_min,
                   std::vector<Id>& out) const;
  /// A leaf's guesses, at least one. Returns the first.
  Id grow(Id id, std::span<const DraftGuess> guesses);
  /// All hints.
  std::vector<schema::DraftBranch> branches() const;

 private:
  struct Node {
    Id id = 0;
    DraftGuess guess = {};
    int32_t parent = -1;  ///< Index: parents come before children.
    uint32_t depth = 0;
    double probability = 1;  ///< Of it and all before it, behind the committed text.
    bool is_hint = true;
    bool is_leaf = true;
  };
  std::vector<Node>::const_iterator find(Id id) const;
  size_t index(Id id) const;
  uint32_t hints() const;

  std::vector<Node> nodes_{Node{}};  ///< 0 is the committed text.
  std::vector<Node> moved_;          ///< Work space of commit.
  std::vector<int32_t> places_;      ///< The same.
  Id last_id_ = 0;
};

}  // namespace outrider::actors
