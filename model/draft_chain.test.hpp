#pragma once

#include <algorithm>

#include "model/draft_control.hpp"

namespace outrider::model {

inline constexpr int32_t k_chain_token = 7;

/// A chain of hints: 7, 8, and so on.
inline std::vector<HintBranch> hint_chain(uint32_t length, uint8_t confidence) {
  std::vector<HintBranch> out;
  for (int32_t i = 0; i < static_cast<int32_t>(length); ++i) {
    out.push_back({i - 1, k_chain_token + i, confidence});
  }
  return out;
}

/// What a step commits of it: `true_hints` come true, `verified` were verified. The tokens that the
/// step gave.
inline size_t commit_chain(Drafts& drafts, size_t true_hints, size_t verified) {
  const size_t accepted = std::min(true_hints, verified);
  for (size_t i = 0; i <= accepted; ++i) {
    drafts.commit(i < true_hints ? k_chain_token + static_cast<int32_t>(i) : 1);
  }
  return accepted + 1;
}

}  // namespace outrider::model
