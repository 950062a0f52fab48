#pragma once

#include <cstdint>
#include <vector>

namespace outrider::model {

/// Of a draft's distribution: its weights sum to this, so that what travels is what was drawn from,
/// to the bit.
inline constexpr uint32_t k_draft_weights = 65'535;
/// Tokens that a draft draws from, at most.
inline constexpr uint32_t k_draft_tokens_max = 64;

/// What a draft drew a token from: entries by ascending id, each drawn with probability weight /
/// k_draft_weights. What is not in it was impossible.
struct DraftDistribution {
  struct Entry {
    int32_t id = 0;
    uint16_t weight = 0;

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> entries;

  friend bool operator==(const DraftDistribution&, const DraftDistribution&) = default;

  uint32_t weight(int32_t id) const;
  double probability(int32_t id) const { return double{1} * weight(id) / k_draft_weights; }
  /// Whether it is one, `drawn` being a token that may have come of it.
  bool is_valid_for(int32_t drawn) const;
};

}  // namespace outrider::model
