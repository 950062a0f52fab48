#include "actors/draft_tree.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace outrider::actors {
/// Ids ascend.
std::vector<DraftTree::Node>::const_iterator DraftTree::find(Id id) const {
  const auto at = std::lower_bound(nodes_.begin(), nodes_.end(), id,
                                   [](const Node& node, Id wanted) { return node.id < wanted; });
  return at != nodes_.end() && at->id == id ? at : nodes_.end();
}

size_t DraftTree::index(Id id) const {
  const auto at = find(id);
  OUTRIDER_CHECK(at != nodes_.end(), id);
  return static_cast<size_t>(at - nodes_.begin());
}

bool DraftTree::holds(Id id) const {
  return find(id) != nodes_.end();
}

uint32_t DraftTree::depth(Id id) const {
  return nodes_[index(id)].depth;
}

uint32_t DraftTree::common_depth(Id a, Id b) const {
  size_t left = index(a);
  size_t right = index(b);
  // A parent's index is less than its child's.
  while (left != right) {
    size_t& deeper = left > right ? left : right;
    deeper = static_cast<size_t>(nodes_[deeper].parent);
  }
  return nodes_[left].depth;
}

void DraftTree::path(Id id, std::vector<int32_t>& out) const {
  const size_t before = out.size();
  for (size_t at = index(id); at > 0; at = static_cast<size_t>(nodes_[at].parent)) {
    out.push_back(nodes_[at].guess.token);
  }
  std::reverse(out.begin() + static_cast<long>(before), out.end());
}

void DraftTree::commit(int32_t token) {
  const auto next = std::find_if(nodes_.begin(), nodes_.end(), [token](const Node& node) {
    return node.depth == 1 && node.guess.token == token;
  });
  moved_.clear();
  if (next == nodes_.end()) {
    moved_.push_back({.id = ++last_id_});
  } else {
    const double scale = next->probability > 0 ? 1 / next->probability : 1;
    const auto first = static_cast<size_t>(next - nodes_.begin());
    places_.assign(nodes_.size(), -1);
    for (size_t i = first; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      const bool is_root = i == first;
      if (!is_root && places_[static_cast<size_t>(node.parent)] < 0) continue;
      node.parent = is_root ? -1 : places_[static_cast<size_t>(node.parent)];
      places_[i] = static_cast<int32_t>(moved_.size());
      --node.depth;
      node.probability *= scale;
      moved_.push_back(std::move(node));
    }
    moved_.front().is_hint = true;
  }
  std::swap(nodes_, moved_);
}

uint32_t DraftTree::hints() const {
  return static_cast<uint32_t>(std::count_if(nodes_.begin() + 1, nodes_.end(),
                                             [](const Node& node) { return node.is_hint; }));
}

void DraftTree::best_leaves(uint32_t count, uint32_t depth, double probability_min,
                            std::vector<Id>& out) const {
  std::vector<const Node*> leaves;
  for (const Node& node : nodes_) {
    if (node.is_leaf && node.depth < depth && node.probability >= probability_min) {
      leaves.push_back(&node);
    }
  }
  const auto taken = static_cast<std::ptrdiff_t>(std::min<size_t>(count, leaves.size()));
  std::partial_sort(
      leaves.begin(), leaves.begin() + taken, leaves.end(), [](const Node* a, const Node* b) {
        return a->probability != b->probability ? a->probability > b->probability : a->id < b->id;
      });
  uint32_t held = hints();
  for (auto leaf = leaves.begin(); leaf != leaves.begin() + taken; ++leaf) {
    // Itself, where it is none yet, and its first guess.
    held += (*leaf)->is_hint ? 1 : 2;
    if (held > model::k_hint_nodes_max) return;
    out.push_back((*leaf)->id);
  }
}

DraftTree::Id DraftTree::grow(Id id, std::span<const DraftGuess> guesses) {
  const size_t at = index(id);
  OUTRIDER_CHECK(nodes_[at].is_leaf && !guesses.empty(), id, guesses.size());
  nodes_[at].is_leaf = false;
  nodes_[at].is_hint = true;
  const Id first = last_id_ + 1;
  for (const DraftGuess& guess : guesses) {
    const Node& above = nodes_[at];
    const double probability = above.probability * double{guess.probability};
    nodes_.push_back({.id = ++last_id_,
                      .guess = guess,
                      .parent = static_cast<int32_t>(at),
                      .depth = above.depth + 1,
                      .probability = probability,
                      .is_hint = last_id_ == first});
  }
  return first;
}

std::vector<schema::DraftBranch> DraftTree::branches() const {
  std::vector<schema::DraftBranch> out;
  std::vector<int32_t> places(nodes_.size(), -1);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.is_hint) continue;
    places[i] = static_cast<int32_t>(out.size());
    const float claim = std::clamp(node.guess.probability, 0.0f, 1.0f) * 255;
    out.push_back({places[static_cast<size_t>(node.parent)], node.guess.token,
                   static_cast<uint8_t>(claim), node.guess.drawn_from});
  }
  return out;
}

}  // namespace outrider::actors
