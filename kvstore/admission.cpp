#include "kvstore/admission.hpp"

#include "kvstore/index_row.hpp"

namespace outrider::kvstore {

Admission::Touches& Admission::entry(uint64_t id) {
  if (const auto found = young_.find(id); found != young_.end()) return found->second;
  Touches touches;
  if (const auto found = old_.find(id); found != old_.end()) {
    touches = found->second;
    old_.erase(found);
  }
  if (young_.size() >= generation_) {
    old_ = std::move(young_);
    young_.clear();
  }
  return young_[id] = touches;
}

std::vector<bool> Admission::touch(std::span<const BlockId> chain, bool hint) {
  std::vector<bool> wanted(chain.size(), hint);
  for (size_t i = 0; i < chain.size(); ++i) {
    Touches& touches = entry(short_of(chain[i]));
    ++touches.count;
    if (i + 1 < chain.size()) {
      const uint64_t child = short_of(chain[i + 1]);
      if (touches.children == 0) {
        touches.children = 1;
        touches.first_child = child;
      } else if (touches.first_child != child) {
        touches.children = 2;
      }
    }
    if (touches.count >= 2 || touches.children >= 2) wanted[i] = true;
  }
  return wanted;
}

}  // namespace outrider::kvstore
