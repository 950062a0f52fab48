#include "model/draft_distribution.hpp"

#include <algorithm>

namespace outrider::model {

uint32_t DraftDistribution::weight(int32_t id) const {
  const auto at = std::lower_bound(entries.begin(), entries.end(), id,
                                   [](const Entry& entry, int32_t v) { return entry.id < v; });
  return at != entries.end() && at->id == id ? at->weight : 0;
}

bool DraftDistribution::is_valid_for(int32_t drawn) const {
  if (entries.size() > k_draft_tokens_max) return false;
  uint32_t sum = 0;
  int32_t last = -1;
  for (const Entry& entry : entries) {
    if (entry.id <= last || entry.weight == 0) return false;
    last = entry.id;
    sum += entry.weight;
  }
  return sum == k_draft_weights && weight(drawn) > 0;
}

}  // namespace outrider::model
