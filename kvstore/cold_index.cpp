#include "kvstore/cold_index.hpp"

#include "base/check.hpp"

namespace outrider::kvstore {
namespace {

/// The account of all tenants beyond the bound.
constexpr uint64_t k_other_tenants = 0;

}  // namespace

ColdIndex::Account& ColdIndex::account(uint64_t tenant) {
  if (const auto found = accounts_.find(tenant); found != accounts_.end()) return found->second;
  if (accounts_.size() >= limits_.tenants_max && tenant != k_other_tenants) {
    return account(k_other_tenants);
  }
  Account& made = accounts_[tenant];
  made.quota_bytes = limits_.default_quota_bytes;
  return made;
}

const Row* ColdIndex::find(const BlockId& id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second.row;
}

size_t ColdIndex::match(uint64_t ns, std::span<const BlockId> chain, int64_t now) const {
  size_t matched = 0;
  for (const BlockId& id : chain) {
    const Row* row = find(id);
    if (row == nullptr || row->ns != ns) break;
    if (row->expires_at != 0 && row->expires_at <= now) break;
    ++matched;
  }
  return matched;
}

void ColdIndex::use(std::span<const BlockId> chain, int64_t now) {
  for (size_t i = chain.size(); i-- > 0;) {
    const auto found = nodes_.find(chain[i]);
    if (found == nodes_.end()) continue;
    Node& node = found->second;
    ++node.row.hits;
    node.row.used_at = now;
    set_used(node, chain[i]);
  }
}

bool ColdIndex::insert(const BlockId& id, const Row& row) {
  if (nodes_.size() + promised_.size() >= limits_.rows_max) return false;
  // From a hostile directory too: two rows of one write.
  if (row.place == Place::fifo && by_sequence_.contains(row.sequence)) return false;
  const auto [at, fresh] = nodes_.try_emplace(id);
  OUTRIDER_CHECK(fresh);
  at->second.row = row;
  at->second.used = ++uses_;
  by_short_.try_emplace(short_of(id), id);
  attach(at->second, id);
  add_child(row.parent);
  if (row.expires_at != 0) by_expiry_[{row.expires_at, id}] = true;
  Account& owner = account(row.tenant);
  ++owner.rows;
  owner.bytes += row.bytes;
  bytes_ += row.bytes;
  return true;
}

void ColdIndex::attach(Node& node, const BlockId& id) {
  Account& owner = account(node.row.tenant);
  if (node.row.place == Place::pinned) {
    owner.pinned_bytes += node.row.bytes;
    pinned_bytes_ += node.row.bytes;
    return;
  }
  update_leaf(id, node);
  const bool unique = by_sequence_.emplace(node.row.sequence, id).second;
  OUTRIDER_CHECK(unique, node.row.sequence);  // `insert` looked; what moves was just written
}

void ColdIndex::set_used(Node& node, const BlockId& id) {
  account(node.row.tenant).leaves.erase(node.used);
  node.used = ++uses_;
  update_leaf(id, node);
}

/// A leaf is what can make room: not pinned, and nothing here or on its way continues it.
void ColdIndex::update_leaf(const BlockId& id, Node& node) {
  Account& owner = account(node.row.tenant);
  const bool is_leaf = node.row.place == Place::fifo && !children_.contains(short_of(id));
  if (is_leaf) {
    owner.leaves.try_emplace(node.used, id);
  } else {
    owner.leaves.erase(node.used);
  }
}

void ColdIndex::add_child(uint64_t parent) {
  ++children_[parent];
  update_parent(parent);
}

void ColdIndex::drop_child(uint64_t parent) {
  if (--children_.at(parent) == 0) children_.erase(parent);
  update_parent(parent);
}

void ColdIndex::update_parent(uint64_t parent) {
  const auto found = by_short_.find(parent);
  if (found != by_short_.end()) update_leaf(found->second, nodes_.at(found->second));
}

void ColdIndex::detach(Node& node, Bytes left) {
  Account& owner = account(node.row.tenant);
  if (node.row.place == Place::pinned) {
    owner.pinned_bytes -= node.row.bytes;
    pinned_bytes_ -= node.row.bytes;
    return;
  }
  owner.leaves.erase(node.used);
  by_sequence_.erase(node.row.sequence);
  if (left == Bytes::dead) note_dead(node.row);
}

bool ColdIndex::erase(const BlockId& id) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return false;
  erase(found, Bytes::dead);
  return true;
}

void ColdIndex::erase(Nodes::iterator at, Bytes left) {
  const Row& row = at->second.row;
  Account& owner = account(row.tenant);
  --owner.rows;
  owner.bytes -= row.bytes;
  bytes_ -= row.bytes;
  if (row.expires_at != 0) by_expiry_.erase({row.expires_at, at->first});
  detach(at->second, left);
  const uint64_t parent = row.parent;
  const auto known = by_short_.find(short_of(at->first));
  if (known != by_short_.end() && known->second == at->first) by_short_.erase(known);
  nodes_.erase(at);
  drop_child(parent);
}

void ColdIndex::move(const BlockId& id, Place place, uint64_t sequence) {
  Node& node = nodes_.at(id);
  // Whoever has it rewritten before it falls out: its owner has no more in the files by that.
  const bool stays = place == Place::fifo && node.row.place == Place::fifo;
  detach(node, stays ? Bytes::gone : Bytes::dead);
  if (place != node.row.place) node.used = ++uses_;
  node.row.place = place;
  node.row.sequence = sequence;
  node.failed_reads = 0;
  attach(node, id);
}

void ColdIndex::set_expiry(const BlockId& id, int64_t expires_at) {
  const auto found = nodes_.find(id);
  if (found == nodes_.end()) return;
  Row& row = found->second.row;
  if (row.expires_at != 0) by_expiry_.erase({row.expires_at, id});
  row.expires_at = expires_at;
  if (expires_at != 0) by_expiry_[{expires_at, id}] = true;
}

uint32_t ColdIndex::count_failed_read(const BlockId& id) {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? 0 : ++found->second.failed_reads;
}

void ColdIndex::forgive_failed_reads(const BlockId& id) {
  if (const auto found = nodes_.find(id); found != nodes_.end()) found->second.failed_reads = 0;
}

void ColdIndex::set_quota(uint64_t tenant, uint64_t bytes) {
  account(tenant).quota_bytes = bytes;
}

void ColdIndex::age_out(uint64_t oldest_sequence, std::vector<BlockId>& removed) {
  while (!by_sequence_.empty() && by_sequence_.begin()->first < oldest_sequence) {
    removed.push_back(by_sequence_.begin()->second);
    erase(nodes_.find(removed.back()), Bytes::gone);
  }
  while (!dead_.empty() && dead_.begin()->first.first < oldest_sequence) {
    account(dead_.begin()->first.second).dead_bytes -= dead_.begin()->second;
    dead_.erase(dead_.begin());
  }
}

void ColdIndex::expire(int64_t now, std::vector<std::pair<BlockId, Place>>& removed) {
  while (!by_expiry_.empty() && by_expiry_.begin()->first.first <= now) {
    const auto at = nodes_.find(by_expiry_.begin()->first.second);
    removed.emplace_back(at->first, at->second.row.place);
    erase(at, Bytes::dead);
  }
}

uint64_t ColdIndex::pinned_bytes(uint64_t tenant) const {
  const auto known = accounts_.find(tenant);
  const auto found = known == accounts_.end() ? accounts_.find(k_other_tenants) : known;
  return found == accounts_.end() ? 0 : found->second.pinned_bytes;
}

std::vector<TenantUse> ColdIndex::tenants() const {
  std::vector<TenantUse> out;
  for (const auto& [tenant, use] : accounts_) {
    out.push_back({{},
                   {},
                   tenant,
                   use.rows,
                   use.bytes,
                   use.pinned_bytes,
                   use.dead_bytes,
                   use.quota_bytes,
                   use.over_quota});
  }
  return out;
}

std::vector<BlockId> ColdIndex::ids(std::optional<uint64_t> tenant) const {
  std::vector<BlockId> out;
  for (const auto& [id, node] : nodes_) {
    if (!tenant || node.row.tenant == *tenant) out.push_back(id);
  }
  return out;
}

std::vector<std::pair<BlockId, Row>> ColdIndex::all() const {
  std::vector<std::pair<BlockId, Row>> out;
  out.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) out.emplace_back(id, node.row);
  return out;
}

std::vector<BlockId> ColdIndex::eviction_order(uint64_t tenant) const {
  const auto found = accounts_.find(tenant);
  if (found == accounts_.end()) return {};
  std::vector<BlockId> ids;
  for (const auto& [used, id] : found->second.leaves) ids.push_back(id);
  return ids;
}

bool ColdIndex::consistent() const {
  uint64_t rows = 0, bytes = 0, pinned = 0, reserved = 0, leaves = 0, promised = 0, children = 0;
  uint64_t dead = 0;
  for (const auto& [tenant, use] : accounts_) {
    rows += use.rows;
    bytes += use.bytes;
    pinned += use.pinned_bytes;
    reserved += use.reserved_bytes;
    dead += use.dead_bytes;
    for (const auto& [used, id] : use.leaves) {
      const auto leaf = nodes_.find(id);
      if (leaf == nodes_.end() || leaf->second.used != used) return false;
      if (children_.contains(short_of(id))) return false;
      ++leaves;
    }
  }
  for (const auto& [id, row] : promised_) promised += row.bytes;
  for (const auto& [parent, count] : children_) children += count;
  size_t expiring = 0, fifo_leaves = 0;
  uint64_t row_bytes = 0;
  for (const auto& [id, node] : nodes_) {
    row_bytes += node.row.bytes;
    expiring += node.row.expires_at != 0;
    if (node.row.place != Place::fifo) continue;
    if (!by_sequence_.contains(node.row.sequence)) return false;
    fifo_leaves += children_.contains(short_of(id)) ? 0 : 1;
  }
  for (const auto& [where, noted] : dead_) dead -= noted;
  if (dead != 0) return false;
  return rows == nodes_.size() && bytes == bytes_ && row_bytes == bytes_ &&
         pinned == pinned_bytes_ && reserved == reserved_bytes_ && promised == reserved_bytes_ &&
         children == nodes_.size() + promised_.size() && leaves == fifo_leaves &&
         expiring == by_expiry_.size();
}

}  // namespace outrider::kvstore
