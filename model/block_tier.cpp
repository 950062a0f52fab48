#include "model/block_tier.hpp"

namespace outrider::model {
namespace {

/// How many of the oldest offers are consecutive blocks that one request uses.
size_t run_length(SpscQueue<TierOffer>& made) {
  size_t length = 1;
  while (const TierOffer* next = made.front(length)) {
    const TierOffer& last = *made.front(length - 1);
    if (next->block.parent != last.block.id || next->retention != last.retention) break;
    ++length;
  }
  return length;
}

}  // namespace

std::vector<TierWants> cold_wants(const std::vector<bool>& wanted) {
  std::vector<TierWants> wants;
  wants.reserve(wanted.size());
  for (const bool is_wanted : wanted) wants.push_back({.cold = is_wanted});
  return wants;
}

void settle(TierOffers& offers, BlockTier& tier) {
  bool any = false;
  while (const TierOffer* first = offers.made.front()) {
    const size_t length = run_length(offers.made);
    const std::shared_ptr<const TierRetention> retention = first->retention;
    std::vector<BlockId> ids, stored;
    for (size_t i = 0; i < length; ++i) ids.push_back(offers.made.front(i)->block.id);
    const std::vector<TierWants> wanted = tier.touch(ids, retention);
    for (size_t i = 0; i < length; ++i) {
      if (!wanted[i].cold) stored.push_back(ids[i]);
      if (!wanted[i].any()) continue;
      if (TierOffer* slot = offers.wanted.free_slot()) {
        std::swap(*slot, *offers.made.front(i));
        slot->wants = wanted[i];
        offers.wanted.push();
        any = true;
      } else {
        ++offers.lost;
      }
    }
    if (retention->asked_for() && !stored.empty()) tier.retain(std::move(stored), *retention);
    offers.made.pop(length);
  }
  if (any) offers.wake();
}

}  // namespace outrider::model
