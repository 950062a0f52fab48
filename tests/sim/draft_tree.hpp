#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/hint_trie.hpp"
#include "tests/sim/texts.hpp"

namespace outrider::sim {

/// One request on a draft that explores branches: a tree of guesses that hangs from the committed
/// text and grows ahead of the verifier, the most probable leaf first. A commit moves the root and
/// keeps what still fits. No larger than the target's trie, so that what is hinted at finds room.
class DraftTree {
 public:
  /// Of a text of `length` tokens. `texts` outlives the tree.
  DraftTree(const Texts& texts, uint32_t request, uint32_t length, uint64_t hash);

  uint32_t length() const { return length_; }
  uint64_t hash() const { return nodes_[0].hash; }
  /// The text goes on with these.
  void commit(std::span<const int32_t> tokens);
  /// Takes up to `rows` leaves into the next step of the model; how many.
  uint32_t begin_step(uint32_t rows);
  /// The step is over: what its rows guess. Appends the guesses that are new or became probable
  /// enough to be followed as hints behind the committed text.
  void end_step();
  /// What is not yet told, as a hint's branches from the root; each is told once.
  std::vector<model::HintBranch> take_news();

 private:
  enum class State : uint8_t { leaf, computing, computed };
  struct Node {
    int32_t token = 0;
    int32_t parent = -1;
    uint32_t depth = 0;
    uint32_t rank = 0;
    double probability = 1;  ///< Of it and all before it, given the committed text.
    uint64_t hash = 0;
    bool is_true = true;
    bool is_wanted = false;  ///< Worth a hint.
    bool is_told = false;
    State state = State::leaf;
  };

  void add_guesses(size_t at);
  void move_root(int32_t token);

  const Texts& texts_;
  uint32_t request_;
  uint32_t length_;
  uint32_t hinted_ = 0;
  std::vector<Node> nodes_;  ///< 0 is the committed text; parents come before children.
  std::vector<size_t> order_;
};

}  // namespace outrider::sim
