#include "model/prefix_index.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace outrider::model {

PrefixIndex::PrefixIndex(uint32_t blocks) : entries_(blocks) {
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

void PrefixIndex::insert(int32_t block, const BlockId& id, int32_t parent) {
  Entry& entry = at(block);
  OUTRIDER_CHECK(!entry.listed && find(id) == k_none, block);
  OUTRIDER_CHECK(parent == k_none || contains(parent), block, parent);
  entry = {.id = id, .parent = parent, .listed = true};
  by_id_.emplace(id, block);
  if (parent != k_none) ++at(parent).children;
}

void PrefixIndex::take(int32_t block) {
  Entry& entry = at(block);
  OUTRIDER_CHECK(entry.is_idle, block);
  (entry.older == k_none ? oldest_ : at(entry.older).younger) = entry.younger;
  (entry.younger == k_none ? youngest_ : at(entry.younger).older) = entry.older;
  entry.older = entry.younger = k_none;
  entry.is_idle = false;
  --idle_;
}

void PrefixIndex::release(int32_t block) {
  Entry& entry = at(block);
  OUTRIDER_CHECK(entry.listed && !entry.is_idle, block);
  entry.is_idle = true;
  entry.older = youngest_;
  (youngest_ == k_none ? oldest_ : at(youngest_).younger) = block;
  youngest_ = block;
  ++idle_;
}

int32_t PrefixIndex::evict() {
  const int32_t block = oldest_;
  if (block == k_none) return k_none;
  take(block);
  Entry& entry = at(block);
  OUTRIDER_CHECK(entry.children == 0, block, entry.children);
  if (entry.parent != k_none) --at(entry.parent).children;
  by_id_.erase(entry.id);
  entry = {};
  ++evictions_;
  return block;
}

void PrefixIndex::check(std::span<const uint32_t> refs) const {
  std::vector<uint32_t> children(entries_.size(), 0);
  uint32_t listed = 0;
  uint32_t idle = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    OUTRIDER_CHECK(entry.is_idle == (entry.listed && refs[i] == 1), i, refs[i]);
    if (!entry.listed) continue;
    ++listed;
    idle += entry.is_idle ? 1 : 0;
    OUTRIDER_CHECK(find(entry.id) == static_cast<int32_t>(i), i);
    if (entry.parent == k_none) continue;
    const auto parent = static_cast<size_t>(entry.parent);
    OUTRIDER_CHECK(contains(entry.parent) && refs[parent] >= 1, i, entry.parent);
    OUTRIDER_CHECK(entry.is_idle || !entries_[parent].is_idle, i, entry.parent);
    ++children[parent];
  }
  OUTRIDER_CHECK(listed == size() && idle == idle_, listed, size(), idle, idle_);
  for (size_t i = 0; i < entries_.size(); ++i) {
    OUTRIDER_CHECK(children[i] == entries_[i].children, i, children[i], entries_[i].children);
  }
  int32_t before = k_none;
  for (int32_t i = oldest_; i != k_none; i = entries_[static_cast<size_t>(i)].younger) {
    OUTRIDER_CHECK(entries_[static_cast<size_t>(i)].older == before && idle > 0, i);
    --idle;
    before = i;
  }
  OUTRIDER_CHECK(idle == 0 && before == youngest_, idle);
}

}  // namespace outrider::model
