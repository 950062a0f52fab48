#include "model/hint_trie.hpp"

#include <algorithm>
#include <array>

#include "base/check.hpp"

namespace outrider::model {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014) over the hash so far and the token.
uint64_t text_hash(uint64_t before, int32_t token) {
  uint64_t x = before + (uint64_t{static_cast<uint32_t>(token)} + 1) * 0x9E37'79B9'7F4A'7C15;
  x = (x ^ x >> 30) * 0xBF58'476D'1CE4'E5B9;
  x = (x ^ x >> 27) * 0x94D0'49BB'1331'11EB;
  return x ^ x >> 31;
}

uint64_t text_hash(uint64_t before, std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) before = text_hash(before, token);
  return before;
}

HintTrie::HintTrie(uint32_t length, uint64_t hash) : length_(length), nodes_{{.hash = hash}} {}

HintTrie::Place HintTrie::find(uint32_t length, uint64_t hash) const {
  if (length <= length_) {
    const uint32_t behind = length_ - length;
    if (behind > past_.size()) return {};
    const uint64_t there = behind == 0 ? nodes_[0].hash : past_[past_.size() - behind].hash_before;
    if (there != hash) return {};
    return behind == 0 ? Place{.node = 0} : Place{.behind = behind};
  }
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (nodes_[i].depth == length - length_ && nodes_[i].hash == hash) {
      return {.node = static_cast<int32_t>(i)};
    }
  }
  return {};
}

int32_t HintTrie::find_child(int32_t parent, int32_t token) const {
  int32_t at = nodes_[static_cast<size_t>(parent)].first_child;
  while (at >= 0 && nodes_[static_cast<size_t>(at)].token != token) {
    at = nodes_[static_cast<size_t>(at)].next;
  }
  return at;
}

/// Nothing was drawn there yet, and any token that may be finds room.
bool HintTrie::may_draw(int32_t parent) const {
  const Node& above = nodes_[static_cast<size_t>(parent)];
  size_t siblings = 0;
  for (int32_t at = above.first_child; at >= 0; at = nodes_[static_cast<size_t>(at)].next) {
    if (nodes_[static_cast<size_t>(at)].drawn_from) return false;
    ++siblings;
  }
  return size() < k_hint_nodes_max && above.depth < k_hint_depth_max &&
         siblings < k_hint_siblings_max;
}

/// -1: no room.
int32_t HintTrie::add_child(int32_t parent, int32_t token) {
  const Node& above = nodes_[static_cast<size_t>(parent)];
  if (size() >= k_hint_nodes_max || above.depth >= k_hint_depth_max) return -1;
  const auto index = static_cast<int32_t>(nodes_.size());
  const Node node = {
      .token = token, .depth = above.depth + 1, .hash = text_hash(above.hash, token)};
  int32_t* link = &nodes_[static_cast<size_t>(parent)].first_child;
  size_t siblings = 0;
  for (; *link >= 0; ++siblings) link = &nodes_[static_cast<size_t>(*link)].next;
  if (siblings >= k_hint_siblings_max) return -1;
  *link = index;
  nodes_.push_back(node);
  return index;
}

HintTrie::Place HintTrie::place(const Place& parent, const HintBranch& branch, HintSource source) {
  if (parent.behind > 0) {
    if (past_[past_.size() - parent.behind].token != branch.token) return {};
    return parent.behind == 1 ? Place{.node = 0} : Place{.behind = parent.behind - 1};
  }
  // Asked before the token is looked up: what was drawn must not decide whether it is verified.
  const bool is_drawn = branch.drawn_from && may_draw(parent.node);
  int32_t child = find_child(parent.node, branch.token);
  if (child < 0) child = add_child(parent.node, branch.token);
  if (child < 0) return {};
  Node& node = nodes_[static_cast<size_t>(child)];
  uint8_t& claim = node.claims[static_cast<size_t>(source)];
  claim = std::max({claim, branch.confidence, uint8_t{1}});
  if (is_drawn) node.drawn_from = branch.drawn_from;
  return {.node = child};
}

HintOutcome HintTrie::insert(const Hint& hint) {
  if (hint.branches.size() > k_hint_nodes_max) return HintOutcome::malformed;
  for (size_t i = 0; i < hint.branches.size(); ++i) {
    const HintBranch& branch = hint.branches[i];
    if (branch.parent < -1 || branch.parent >= static_cast<int32_t>(i) || branch.token < 0 ||
        (branch.drawn_from && !branch.drawn_from->is_valid_for(branch.token))) {
      return HintOutcome::malformed;
    }
  }
  const Place base = find(hint.base_length, hint.base_hash);
  if (base.is_nowhere()) {
    const bool is_known = hint.base_length <= length_ && length_ - hint.base_length <= past_.size();
    return is_known ? HintOutcome::mismatch : HintOutcome::absent;
  }
  std::array<Place, k_hint_nodes_max> places;
  bool used = false;
  bool no_room = false;
  bool mismatch = false;
  for (size_t i = 0; i < hint.branches.size(); ++i) {
    const HintBranch& branch = hint.branches[i];
    const Place parent = branch.parent < 0 ? base : places[static_cast<size_t>(branch.parent)];
    if (parent.is_nowhere()) continue;
    places[i] = place(parent, branch, hint.source);
    used |= places[i].node > 0;
    if (places[i].is_nowhere()) (parent.behind > 0 ? mismatch : no_room) = true;
  }
  if (used) return HintOutcome::used;
  return no_room ? HintOutcome::full : mismatch ? HintOutcome::mismatch : HintOutcome::late;
}

void HintTrie::commit(int32_t token) {
  if (past_.size() == k_hint_depth_max) past_.erase(past_.begin());
  past_.push_back({token, nodes_[0].hash});
  ++length_;
  moved_.clear();
  const int32_t child = find_child(0, token);
  if (child < 0) {
    moved_.push_back({.hash = text_hash(nodes_[0].hash, token)});
  } else {
    moved_.push_back(nodes_[static_cast<size_t>(child)]);
    // Breadth first: until a node's turn comes, its first_child points into the old vector.
    for (size_t i = 0; i < moved_.size(); ++i) {
      --moved_[i].depth;
      int32_t old = moved_[i].first_child;
      if (old >= 0) moved_[i].first_child = static_cast<int32_t>(moved_.size());
      for (; old >= 0; old = nodes_[static_cast<size_t>(old)].next) {
        moved_.push_back(nodes_[static_cast<size_t>(old)]);
        const bool is_last = moved_.back().next < 0;
        moved_.back().next = is_last ? -1 : static_cast<int32_t>(moved_.size());
      }
    }
    moved_[0].next = -1;
  }
  std::swap(nodes_, moved_);
  OUTRIDER_CHECK(nodes_[0].depth == 0, nodes_[0].depth);
}

void HintTrie::drawn_path(uint32_t depth, std::vector<Step>& out) const {
  int32_t at = 0;
  for (uint32_t i = 0; i < depth; ++i) {
    at = node(at).first_child;
    while (at >= 0 && !node(at).drawn_from) at = node(at).next;
    if (at < 0) return;
    out.push_back({.token = node(at).token, .drawn_from = node(at).drawn_from});
  }
}

}  // namespace outrider::model
