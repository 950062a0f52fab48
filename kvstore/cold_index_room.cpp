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
/// Rows that one call looks at, so that nobody waits for long; the next one goes on there.
constexpr size_t k_entries_looked_at_max = 4096;

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
  const uint64_t wanted = owner.bytes + owner.reserved_bytes + bytes;
  const size_t rows = nodes_.size() + promised_.size() + 1;
  const Missing missing = {wanted > owner.quota_bytes ? wanted - owner.quota_bytes : 0,
                           rows > limits_.rows_max ? rows - limits_.rows_max : 0};
  std::vector<BlockId> victims;
  if (missing.bytes != 0 || missing.rows != 0) {
    const uint64_t fixed = owner.pinned_bytes + owner.reserved_bytes + bytes_kept_for(row);
    if (bytes > owner.quota_bytes || fixed > owner.quota_bytes - bytes) return Room::over_quota;
    const Room room = find_victims(owner, row.parent, missing, victims);
    if (room != Room::granted) return room;
  }
  if (row.place == Place::fifo && crowds_others(owner, bytes)) return Room::dead_bytes;
  for (const BlockId& victim : victims) erase(nodes_.find(victim), Bytes::dead);
  evicted.insert(evicted.end(), victims.begin(), victims.end());
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

bool ColdIndex::is_of(const Account& owner, const BlockId& id) {
  return &account(nodes_.at(id).row.tenant) == &owner;
}

/// New rows come behind all that leave, so that no look is needed twice.
bool ColdIndex::crowds_others(Account& owner, uint64_t bytes) {
  if (!has_too_much(owner, bytes)) return false;
  size_t looks = 0;
  auto at = by_sequence_.lower_bound(owner.first_of_others);
  for (; at != by_sequence_.end() && at->first < leaving_.next; ++at) {
    owner.first_of_others = at->first;
    if (!is_of(owner, at->second) || ++looks == k_entries_looked_at_max) return true;
  }
  return false;
}

bool ColdIndex::crowds(const Row& row) {
  return crowds_others(account(row.tenant), row.bytes);
}

/// A lap of the files moves each living record of others once, and has room for the rest.
bool ColdIndex::may_move_others(const Account& owner) const {
  const uint64_t own = owner.bytes - owner.pinned_bytes;
  const uint64_t others = bytes_ - pinned_bytes_ - own;
  return others <= leaving_.cap_bytes / (k_moved_for_each + 1) * k_moved_for_each;
}

void ColdIndex::note_leaving(const Leaving& leaving) {
  leaving_.soon = std::max(leaving_.soon, leaving.soon);
  leaving_.next = std::max(leaving_.next, leaving.next);
  leaving_.cap_bytes = leaving.cap_bytes;
}

std::vector<BlockId> ColdIndex::spare(const BlockId& id, const Row& row,
                                      const std::function<bool(const BlockId&)>& moves) {
  std::vector<BlockId> ids;
  Account& owner = account(row.tenant);
  const Row* here = find(id);
  const bool counted = promised_.contains(id) || (here != nullptr && here->place == Place::fifo);
  if (!has_too_much(owner, counted ? 0 : row.bytes) || !may_move_others(owner)) return ids;
  owner.owed_bytes += k_moved_for_each * row.bytes;
  auto at = by_sequence_.lower_bound(owner.spared_until);
  for (size_t looks = 0; at != by_sequence_.end() && at->first < leaving_.soon; ++at) {
    if (++looks > k_entries_looked_at_max) return ids;
    if (!is_of(owner, at->second) && !moves(at->second)) {
      const uint64_t bytes = nodes_.at(at->second).row.bytes;
      if (bytes > owner.owed_bytes) return ids;
      owner.owed_bytes -= bytes;
      ids.push_back(at->second);
    }
    owner.spared_until = at->first + 1;
  }
  owner.owed_bytes = 0;
  return ids;
}

std::optional<uint64_t> ColdIndex::oldest_to_spare(const Row& row) {
  Account& owner = account(row.tenant);
  if (!crowds_others(owner, row.bytes) || !may_move_others(owner)) return std::nullopt;
  return owner.first_of_others;
}

std::vector<BlockId> ColdIndex::others_until(const Row& row, uint64_t last) {
  std::vector<BlockId> ids;
  const Account& owner = account(row.tenant);
  auto at = by_sequence_.lower_bound(owner.first_of_others);
  for (; at != by_sequence_.end() && at->first <= last; ++at) {
    if (!is_of(owner, at->second)) ids.push_back(at->second);
  }
  return ids;
}

/// They go when the last of their span does.
void ColdIndex::note_dead(const Row& row) {
  dead_[{row.sequence | (k_dead_span - 1), row.tenant}] += row.bytes;
  account(row.tenant).dead_bytes += row.bytes;
}

void ColdIndex::forget_files() {
  OUTRIDER_CHECK(nodes_.empty());
  for (auto& [tenant, owner] : accounts_) {
    owner.dead_bytes = owner.owed_bytes = 0;
    owner.first_of_others = owner.spared_until = 0;
  }
  dead_.clear();
  leaving_ = {};
}

}  // namespace outrider::kvstore
