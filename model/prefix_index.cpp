#include "model/prefix_index.hpp"

#include <algorithm>
#include <functional>

#include "base/check.hpp"

namespace outrider::model {

PrefixIndex::PrefixIndex(uint32_t blocks, uint32_t pins_max)
    : entries_(blocks), pins_max_(pins_max) {
  by_id_.reserve(blocks);
}

int32_t PrefixIndex::find(const BlockId& id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? k_none : found->second;
}

uint32_t PrefixIndex::longest(std::span<const BlockId> chain) const {
  if (chain.empty() || find(chain.front()) == k_none) return 0;
  const auto end = std::partition_point(chain.begin(), chain.end(),
                                        [&](const BlockId& id) { return find(id) != k_none; });
  return static_cast<uint32_t>(end - chain.begin());
}

void PrefixIndex::insert(int32_t block, const BlockId& id, int32_t parent, uint64_t owner) {
  Entry& entry = at(block);
  OUTRIDER_CHECK(!entry.listed && find(id) == k_none, block);
  OUTRIDER_CHECK(parent == k_none || (contains(parent) && at(parent).owner == owner), block,
                 parent);
  const uint32_t depth = parent == k_none ? 0 : at(parent).depth + 1;
  entry = {.id = id, .parent = parent, .depth = depth, .listed = true, .owner = owner};
  by_id_.emplace(id, block);
  if (parent != k_none) ++at(parent).children;
}

PrefixIndex::Pin PrefixIndex::pin_of(int32_t block) const {
  return {*at(block).pinned_until, UINT32_MAX - at(block).depth, block};
}

void PrefixIndex::link(int32_t block) {
  Entry& entry = at(block);
  IdleList& list = list_of(entry);
  entry.is_idle = true;
  entry.older = list.youngest;
  (list.youngest == k_none ? list.oldest : at(list.youngest).younger) = block;
  list.youngest = block;
  ++list.size;
}

void PrefixIndex::unlink(int32_t block) {
  Entry& entry = at(block);
  IdleList& list = list_of(entry);
  (entry.older == k_none ? list.oldest : at(entry.older).younger) = entry.younger;
  (entry.younger == k_none ? list.youngest : at(entry.younger).older) = entry.older;
  entry.older = entry.younger = k_none;
  entry.is_idle = false;
  --list.size;
}

void PrefixIndex::take(int32_t block) {
  OUTRIDER_CHECK(at(block).is_idle, block);
  unlink(block);
}

void PrefixIndex::release(int32_t block) {
  OUTRIDER_CHECK(contains(block) && !at(block).is_idle, block);
  link(block);
}

int32_t PrefixIndex::evict() {
  const int32_t block = idle_[idle_[0].size == 0 ? 1 : 0].oldest;
  if (block == k_none) return k_none;
  if (at(block).pinned_until) ++pins_evicted_;
  remove(block);
  ++evictions_;
  return block;
}

void PrefixIndex::remove(int32_t block) {
  unlink(block);
  Entry& entry = at(block);
  OUTRIDER_CHECK(entry.children == 0, block, entry.children);
  if (entry.pinned_until) unpin(block);
  if (entry.parent != k_none) --at(entry.parent).children;
  by_id_.erase(entry.id);
  entry = {};
}

PrefixIndex::Forgotten PrefixIndex::forget(std::optional<uint64_t> owner) {
  Forgotten out;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (!entry.listed || (owner && entry.owner != *owner)) continue;
    if (entry.is_idle) {
      out.blocks.push_back(static_cast<int32_t>(i));
    } else {
      ++out.held;
    }
  }
  // What hangs on an idle block is idle, and goes first.
  std::ranges::sort(out.blocks, std::ranges::greater{}, [this](int32_t i) { return at(i).depth; });
  for (const int32_t block : out.blocks) remove(block);
  return out;
}

bool PrefixIndex::pin(int32_t block, TimePoint until) {
  Entry& entry = at(block);
  OUTRIDER_CHECK(entry.listed && !entry.is_idle, block);
  if (entry.pinned_until && *entry.pinned_until >= until) return true;
  if (entry.parent != k_none) {
    const std::optional<TimePoint>& parents = at(entry.parent).pinned_until;
    if (!parents || *parents < until) return false;
  }
  if (entry.pinned_until) {
    unpin(block);
  } else {
    const auto own = pins_by_.find(entry.owner);
    const uint32_t of_owner = own == pins_by_.end() ? 0 : own->second;
    if (pins_.size() >= pins_max_ || of_owner >= (pins_max_ + 1) / 2) return false;
  }
  entry.pinned_until = until;
  pins_.insert(pin_of(block));
  ++pins_by_[entry.owner];
  return true;
}

void PrefixIndex::unpin(int32_t block) {
  pins_.erase(pin_of(block));
  at(block).pinned_until.reset();
  const auto own = pins_by_.find(at(block).owner);
  if (--own->second == 0) pins_by_.erase(own);
}

void PrefixIndex::end_pins(TimePoint now) {
  while (!pins_.empty() && std::get<TimePoint>(*pins_.begin()) <= now) {
    const int32_t block = std::get<int32_t>(*pins_.begin());
    const bool idle = at(block).is_idle;
    if (idle) unlink(block);
    unpin(block);
    if (idle) link(block);
    ++pins_ended_;
  }
}

void PrefixIndex::check(std::span<const uint32_t> refs) const {
  check_entries(refs);
  for (const bool pinned : {false, true}) check_list(pinned);
}

void PrefixIndex::check_entries(std::span<const uint32_t> refs) const {
  std::vector<uint32_t> children(entries_.size(), 0);
  uint32_t listed = 0, idle_here = 0, pinned_here = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    OUTRIDER_CHECK(entry.is_idle == (entry.listed && refs[i] == 1), i, refs[i]);
    if (!entry.listed) continue;
    ++listed;
    idle_here += entry.is_idle ? 1 : 0;
    OUTRIDER_CHECK(find(entry.id) == static_cast<int32_t>(i), i);
    if (entry.pinned_until) {
      ++pinned_here;
      OUTRIDER_CHECK(pins_.contains(pin_of(static_cast<int32_t>(i))), i);
    }
    if (entry.parent == k_none) continue;
    const auto parent = static_cast<size_t>(entry.parent);
    OUTRIDER_CHECK(contains(entry.parent) && refs[parent] >= 1, i, entry.parent);
    OUTRIDER_CHECK(entry.is_idle || !entries_[parent].is_idle, i, entry.parent);
    OUTRIDER_CHECK(entry.pinned_until <= entries_[parent].pinned_until, i, entry.parent);
    OUTRIDER_CHECK(entry.owner == entries_[parent].owner, i, entry.parent);
    ++children[parent];
  }
  OUTRIDER_CHECK(listed == size() && idle_here == idle(), listed, size(), idle_here, idle());
  OUTRIDER_CHECK(pinned_here == pinned() && pinned() <= pins_max_, pinned_here, pinned());
  for (const auto& [owner, pins] : pins_by_) pinned_here -= pins;
  OUTRIDER_CHECK(pinned_here == 0, pinned_here);
  for (size_t i = 0; i < entries_.size(); ++i) {
    OUTRIDER_CHECK(children[i] == entries_[i].children, i, children[i], entries_[i].children);
  }
}

void PrefixIndex::check_list(bool pinned) const {
  const IdleList& list = idle_[pinned ? 1 : 0];
  uint32_t left = list.size;
  int32_t before = k_none;
  for (int32_t i = list.oldest; i != k_none; i = at(i).younger) {
    OUTRIDER_CHECK(at(i).older == before && left > 0 && at(i).is_idle, i);
    OUTRIDER_CHECK(at(i).pinned_until.has_value() == pinned, i);
    --left;
    before = i;
  }
  OUTRIDER_CHECK(left == 0 && before == list.youngest, left);
}

}  // namespace outrider::model
