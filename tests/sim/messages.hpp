#pragma once

#include <cstdint>
#include <vector>

#include "model/hint_trie.hpp"

namespace outrider::sim {

/// Tokens that stand behind `base_length` others for good. The first one of a request brings its
/// prompt.
struct DraftCommit {
  uint32_t slot = 0;
  uint32_t request = 0;
  uint32_t base_length = 0;
  std::vector<int32_t> tokens;
  uint32_t rows = 0;  ///< Of the draft's steps, for this request.
};

struct DraftHint {
  uint32_t slot = 0;
  uint32_t request = 0;
  uint32_t base_length = 0;
  uint64_t base_hash = 0;
  std::vector<model::HintBranch> branches;
};

}  // namespace outrider::sim
