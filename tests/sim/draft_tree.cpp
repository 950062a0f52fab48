#include "tests/sim/draft_tree.hpp"

#include <algorithm>

namespace outrider::sim {

using model::k_hint_depth_max;
using model::k_hint_nodes_max;

namespace {

/// Less probable leaves are not worth their place in a trie of so many.
constexpr double k_probability_min = 1.0 / k_hint_nodes_max;

}  // namespace

DraftTree::DraftTree(const Texts& texts, uint32_t request, uint32_t length, uint64_t hash)
    : texts_(texts), request_(request), length_(length) {
  nodes_.push_back({.hash = hash, .is_wanted = true, .is_told = true});
}

uint32_t DraftTree::begin_step(uint32_t rows) {
  order_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const bool is_open = node.state == State::leaf && node.depth < k_hint_depth_max;
    if (is_open && node.probability >= k_probability_min) order_.push_back(i);
  }
  const auto more_probable = [this](size_t a, size_t b) {
    return nodes_[a].probability != nodes_[b].probability
               ? nodes_[a].probability > nodes_[b].probability
               : a < b;
  };
  const auto taken = static_cast<std::ptrdiff_t>(std::min<size_t>(rows, order_.size()));
  std::partial_sort(order_.begin(), order_.begin() + taken, order_.end(), more_probable);
  uint32_t count = 0;
  for (auto at = order_.begin(); at != order_.begin() + taken; ++at) {
    // Itself, unless it is hinted at already, and its first guess.
    if (hinted_ + 2 > k_hint_nodes_max) break;
    Node& node = nodes_[*at];
    if (!node.is_wanted) ++hinted_;
    node.is_wanted = true;
    node.state = State::computing;
    ++hinted_;
    ++count;
  }
  return count;
}

void DraftTree::add_guesses(size_t at) {
  const Node node = nodes_[at];
  const auto guesses = node.is_true ? texts_.guesses(request_, length_ + node.depth)
                                    : texts_.guesses_elsewhere(node.hash);
  const int32_t truth = texts_.truth(request_, length_ + node.depth);
  for (uint32_t rank = 0; rank < k_guesses; ++rank) {
    nodes_.push_back({.token = guesses[rank],
                      .parent = static_cast<int32_t>(at),
                      .depth = node.depth + 1,
                      .rank = rank,
                      .probability = node.probability * texts_.claim(rank),
                      .hash = model::text_hash(node.hash, guesses[rank]),
                      .is_true = node.is_true && guesses[rank] == truth,
                      .is_wanted = rank == 0});
  }
}

void DraftTree::end_step() {
  const size_t count = nodes_.size();
  for (size_t i = 0; i < count; ++i) {
    if (nodes_[i].state != State::computing) continue;
    nodes_[i].state = State::computed;
    add_guesses(i);
  }
}

std::vector<model::HintBranch> DraftTree::take_news() {
  std::vector<model::HintBranch> branches;
  // Each told node is preceded by its parents, told again: a hint says where it hangs.
  std::vector<bool> needed(nodes_.size(), false);
  bool is_any = false;
  for (size_t i = nodes_.size(); i-- > 1;) {
    Node& node = nodes_[i];
    if (node.is_wanted && !node.is_told) needed[i] = is_any = true;
    node.is_told |= node.is_wanted;
    if (needed[i]) needed[static_cast<size_t>(node.parent)] = true;
  }
  if (!is_any) return branches;
  std::vector<int32_t> index(nodes_.size(), -1);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    if (!needed[i]) continue;
    const Node& node = nodes_[i];
    index[i] = static_cast<int32_t>(branches.size());
    branches.push_back({.parent = index[static_cast<size_t>(node.parent)],
                        .token = node.token,
                        .confidence = static_cast<uint8_t>(255 * texts_.claim(node.rank))});
  }
  return branches;
}

void DraftTree::commit(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) move_root(token);
}

void DraftTree::move_root(int32_t token) {
  ++length_;
  const uint64_t hash = model::text_hash(nodes_[0].hash, token);
  const auto is_next = [token](const Node& node) { return node.depth == 1 && node.token == token; };
  const auto next = std::find_if(nodes_.begin(), nodes_.end(), is_next);
  std::vector<Node> kept;
  hinted_ = 0;
  if (next != nodes_.end()) {
    const double scale = 1 / next->probability;
    std::vector<int32_t> moved(nodes_.size(), -1);
    for (size_t i = static_cast<size_t>(next - nodes_.begin()); i < nodes_.size(); ++i) {
      Node node = nodes_[i];
      const bool is_root = kept.empty();
      if (!is_root && moved[static_cast<size_t>(node.parent)] < 0) continue;
      node.parent = is_root ? -1 : moved[static_cast<size_t>(node.parent)];
      moved[i] = static_cast<int32_t>(kept.size());
      --node.depth;
      node.probability *= scale;
      // A row under way will guess once more.
      hinted_ += (is_root ? 0 : node.is_wanted) + (node.state == State::computing ? 1 : 0);
      kept.push_back(node);
    }
    kept[0].is_wanted = kept[0].is_told = true;
  } else {
    kept.push_back({.hash = hash, .is_wanted = true, .is_told = true});
  }
  nodes_ = std::move(kept);
}

}  // namespace outrider::sim
