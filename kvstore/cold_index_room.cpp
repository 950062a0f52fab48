// The index's work on room: what a new record evicts, and what is left of those in the files.

#include <algorithm>

#include "base/check.hpp"
#include "kvstore/cold_index.hpp"

namespace outrider::kvstore {
namespace {

/// Bytes of others' records that move for each that a tenant with too much in the files brings. As
/// they begin a quarter of the cap before they fall out, any stretch of them is through in time.
constexpr uint64_t k_moved_for_each = 4;
/// Dead bytes are noted by spans of so many sequence numbers: less than a file of most stores.
constexpr uint64_t k_dead_span = 64;

}  // namespace

/// Here or on its way; null: neither.
const Row* ColdIndex::parent_of(const Row& row) const {
  if (const auto here = by_short_.find(row.parent); here != by_short_.end()) {
    return &nodes_.at(here->second).row;
  }
  const auto coming = promised_by_short_.find(row.parent);
  return coming == promised_by_short_.end() ? nullptr : &promised_.at(coming->second);
}

/// Of the chain that the row continues, what could make room for others, but not for it: the
/// tenant's own records that are here and not pinned.
uint64_t ColdIndex::bytes_kept_for(const Row& row) const {
  uint64_t bytes = 0;
  const Row* child = &row;
  for (;;) {
    const Row* parent = parent_of(*child);
    // Of a hostile directory: depths that do not fall could lead round for ever.
    if (parent == nullptr || parent->depth >= child->depth || parent->tenant != row.tenant) {
      return bytes;
    }
    // What is on its way counts as reserved.
    if (parent->place == Place::fifo && by_short_.contains(child->parent)) bytes += parent->bytes;
    child = parent;
  }
}

Room ColdIndex::reserve(const BlockId& id, const Row& row, std::vector<BlockId>& evicted) {
  if (nodes_.contains(id)) return Room::duplicate;
  Account& owner = account(row.tenant);
  const uint64_t bytes = row.bytes;
  if (row.place == Place::fifo && crowds_others(owner, bytes)) return Room::dead_bytes;
  const uint64_t wanted = owner.bytes + owner.reserved_bytes + bytes;
  const size_t rows = nodes_.size() + promised_.size() + 1;
  const Missing missing = {wanted > owner.quota_bytes ? wanted - owner.quota_bytes : 0,
                           rows > limits_.rows_max ? rows - limits_.rows_max : 0};
  if (missing.bytes != 0 || missing.rows != 0) {
    const uint64_t fixed = owner.pinned_bytes + owner.reserved_bytes + bytes_kept_for(row);
    if (bytes > owner.quota_bytes || fixed > owner.quota_bytes - bytes) return Room::over_quota;
    std::vector<BlockId> victims;
    const Room room = find_victims(owner, row.parent, missing, victims);
    if (room != Room::granted) return room;
    for (const BlockId& victim : victims) erase(nodes_.find(victim), Bytes::dead);
    evicted.insert(evicted.end(), victims.begin(), victims.end());
  }
  owner.reserved_bytes += bytes;
  reserved_bytes_ += bytes;
  const bool fresh = promised_.try_emplace(id, row).second;
  OUTRIDER_CHECK(fresh);
  promised_by_short_.try_emplace(short_of(id), id);
  add_child(row.parent);
  return Room::granted;
}

/// Who would leave, in this order: nobody does unless all that is missing can be had.
Room ColdIndex::find_victims(const Account& owner, uint64_t kept, Missing missing,
                             std::vector<BlockId>& victims) {
  auto leaf = owner.leaves.begin();
  std::map<uint64_t, BlockId> bared;             // leaves once the victims are gone
  std::unordered_map<uint64_t, uint32_t> fewer;  // children of these
  uint64_t freed = 0;
  while (freed < missing.bytes || victims.size() < missing.rows) {
    if (leaf != owner.leaves.end() && short_of(leaf->second) == kept) ++leaf;
    const bool any = leaf != owner.leaves.end();
    if (!any && bared.empty()) {
      return victims.size() < missing.rows ? Room::index_full : Room::over_quota;
    }
    if (any && (bared.empty() || leaf->first < bared.begin()->first)) {
      victims.push_back((leaf++)->second);
    } else {
      victims.push_back(bared.extract(bared.begin()).mapped());
    }
    const Row& victim = nodes_.at(victims.back()).row;
    freed += victim.bytes;
    const auto known = by_short_.find(victim.parent);
    if (known == by_short_.end() || victim.parent == kept) continue;
    const Node& parent = nodes_.at(known->second);
    const bool is_own = &account(parent.row.tenant) == &owner && parent.row.place == Place::fifo;
    if (++fewer[victim.parent] == children_.at(victim.parent) && is_own) {
      bared.emplace(parent.used, known->second);
    }
  }
  return Room::granted;
}

void ColdIndex::trim(std::vector<BlockId>& evicted) {
  for (auto& [tenant, owner] : accounts_) {
    while (owner.bytes > owner.quota_bytes && !owner.leaves.empty()) {
      evicted.push_back(owner.leaves.begin()->second);
      erase(nodes_.find(evicted.back()), Bytes::dead);
    }
  }
}

void ColdIndex::release(const BlockId& id) {
  const auto at = promised_.find(id);
  OUTRIDER_CHECK(at != promised_.end());
  const Row row = at->second;
  promised_.erase(at);
  const auto known = promised_by_short_.find(short_of(id));
  if (known != promised_by_short_.end() && known->second == id) promised_by_short_.erase(known);
  account(row.tenant).reserved_bytes -= row.bytes;
  reserved_bytes_ -= row.bytes;
  drop_child(row.parent);
}

/// With so many bytes more than its quota, alive and dead.
bool ColdIndex::has_too_much(const Account& owner, uint64_t bytes) const {
  const uint64_t in_files =
      owner.bytes - owner.pinned_bytes + owner.dead_bytes + owner.reserved_bytes;
  return in_files + bytes > owner.quota_bytes;
}

bool ColdIndex::crowds_others(const Account& owner, uint64_t bytes) const {
  if (!has_too_much(owner, bytes)) return false;
  return std::any_of(accounts_.begin(), accounts_.end(), [&](const auto& entry) {
    const auto& leaving = entry.second.leaving;
    return &entry.second != &owner && !leaving.empty() && leaving.begin()->first < next_sequence_;
  });
}

void ColdIndex::note_leaving(uint64_t leaving, uint64_t next) {
  next_sequence_ = std::max(next_sequence_, next);
  if (leaving <= leaving_sequence_) return;
  for (auto at = by_sequence_.lower_bound(leaving_sequence_);
       at != by_sequence_.end() && at->first < leaving; ++at) {
    account(nodes_.at(at->second).row.tenant).leaving.emplace(at->first, at->second);
  }
  leaving_sequence_ = leaving;
}

std::vector<BlockId> ColdIndex::spare(const Row& row,
                                      const std::function<bool(const BlockId&)>& moves) {
  std::vector<BlockId> ids;
  Account& owner = account(row.tenant);
  const bool fits = row.place == Place::fifo && row.bytes <= owner.quota_bytes;
  if (!fits || !has_too_much(owner, row.bytes)) return ids;
  using At = std::map<uint64_t, BlockId>::const_iterator;
  std::map<uint64_t, std::pair<At, At>> fronts;  // what is left of each other's, by the oldest
  for (const auto& [tenant, other] : accounts_) {
    if (&other == &owner || other.leaving.empty()) continue;
    fronts.emplace(other.leaving.begin()->first,
                   std::pair(other.leaving.begin(), other.leaving.end()));
  }
  owner.owed_bytes += k_moved_for_each * row.bytes;
  while (!fronts.empty()) {
    auto [at, end] = fronts.begin()->second;
    const BlockId& id = at->second;
    if (!moves(id)) {
      const uint64_t bytes = nodes_.at(id).row.bytes;
      if (bytes > owner.owed_bytes) return ids;
      owner.owed_bytes -= bytes;
      ids.push_back(id);
    }
    fronts.erase(fronts.begin());
    if (++at != end) fronts.emplace(at->first, std::pair(at, end));
  }
  owner.owed_bytes = 0;
  return ids;
}

/// They go when the last of their span does.
void ColdIndex::note_dead(const Row& row) {
  dead_[{row.sequence | (k_dead_span - 1), row.tenant}] += row.bytes;
  account(row.tenant).dead_bytes += row.bytes;
}

void ColdIndex::forget_files() {
  OUTRIDER_CHECK(nodes_.empty());
  for (auto& [tenant, owner] : accounts_) owner.dead_bytes = owner.owed_bytes = 0;
  dead_.clear();
  leaving_sequence_ = next_sequence_ = 0;
}

}  // namespace outrider::kvstore
