#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.hpp"
#include "model/engine.hpp"
#include "model/hint_trie.hpp"

namespace outrider::exactness {

/// A drafter that knows the answer, and tells it, or lies: hints that are right, wrong from some
/// token on, late, ahead of what is known, told twice, of other texts, endless or malformed,
/// or said to be drawn though nobody verifies by that.
class Drafter {
 public:
  Drafter(Random& random, uint32_t vocabulary) : random_(random), vocabulary_(vocabulary) {}

  /// What a choice is asked, what it has said so far, and what it will have said.
  struct Text {
    std::span<const int32_t> prompt;
    std::span<const int32_t> answer;
    uint32_t said = 0;
  };
  void draft(model::Engine& engine, RequestKey key, uint32_t choice, const Text& text);

 private:
  void add_answer(const Text& text, uint32_t from);
  void give(model::Engine& engine, RequestKey key, uint32_t choice);

  Random& random_;
  uint32_t vocabulary_;
  uint32_t base_length_ = 0;  ///< Of the last hint, which is told again now and then.
  uint64_t base_hash_ = 0;
  std::vector<model::HintBranch> branches_;
};

}  // namespace outrider::exactness
