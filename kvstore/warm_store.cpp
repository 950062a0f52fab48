#include "kvstore/warm_store.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace outrider::kvstore {

/// Outlives the store as long as anybody reads.
struct WarmStore::Slots {
  Slots(std::shared_ptr<std::byte> memory_of_all, size_t bytes, size_t count)
      : memory(std::move(memory_of_all)), slot_bytes(bytes), slots(count) {
    for (size_t i = count; i-- > 0;) free.push_back(memory.get() + i * bytes);
  }

  const std::shared_ptr<std::byte> memory;
  const size_t slot_bytes;
  const size_t slots;
  std::mutex mutex;
  std::vector<std::byte*> free;
};

WarmStore::WarmStore(std::shared_ptr<std::byte> memory, size_t slot_bytes, size_t slots)
    : slots_(std::make_shared<Slots>(std::move(memory), slot_bytes, slots)) {}

WarmStore::~WarmStore() = default;

size_t WarmStore::slot_bytes() const {
  return slots_->slot_bytes;
}

std::shared_ptr<std::byte> WarmStore::slot() {
  const std::lock_guard lock(mutex_);
  while (true) {
    {
      const std::lock_guard of_slots(slots_->mutex);
      if (!slots_->free.empty()) {
        std::byte* const free = slots_->free.back();
        slots_->free.pop_back();
        return {free, [slots = slots_](std::byte* slot) {
                  const std::lock_guard of_slot(slots->mutex);
                  slots->free.push_back(slot);
                }};
      }
    }
    if (evict()) continue;
    ++refused_;
    return nullptr;
  }
}

void WarmStore::count(Tenant& tenant, const std::string& name, int64_t more) {
  by_size_.erase({tenant.blocks, name});
  tenant.blocks += static_cast<uint64_t>(more);
  if (tenant.blocks > 0) by_size_.emplace(tenant.blocks, name);
}

void WarmStore::use(Entry& entry) {
  const BlockId& id = entry.block->id;
  Leaves& leaves = tenants_.at(entry.block->tenant).leaves;
  leaves.erase(entry.used_at);
  entry.used_at = ++uses_;
  if (is_leaf(id)) leaves.emplace(entry.used_at, id);
}

void WarmStore::put(WarmBlock block) {
  const std::lock_guard lock(mutex_);
  if (entries_.contains(block.id)) return;
  const BlockId id = block.id;
  const BlockId parent = block.parent;
  Tenant& tenant = tenants_[block.tenant];
  count(tenant, block.tenant, 1);
  Entry& entry = entries_[id];
  entry.block = std::make_shared<const WarmBlock>(std::move(block));
  use(entry);
  ++children_[parent];
  const auto before = entries_.find(parent);
  if (before == entries_.end()) return;
  tenants_.at(before->second.block->tenant).leaves.erase(before->second.used_at);
}

void WarmStore::remove(std::unordered_map<BlockId, Entry, BlockIdHash>::iterator at) {
  const std::shared_ptr<const WarmBlock> block = at->second.block;
  Tenant& tenant = tenants_.at(block->tenant);
  tenant.leaves.erase(at->second.used_at);
  entries_.erase(at);
  count(tenant, block->tenant, -1);
  if (tenant.blocks == 0) tenants_.erase(block->tenant);
  const auto siblings = children_.find(block->parent);
  if (--siblings->second > 0) return;
  children_.erase(siblings);
  const auto before = entries_.find(block->parent);
  if (before == entries_.end()) return;
  const Entry& leaf = before->second;
  tenants_.at(leaf.block->tenant).leaves.emplace(leaf.used_at, leaf.block->id);
}

/// Of what nobody reads: else its slot would not be free.
bool WarmStore::evict() {
  for (auto tenant = by_size_.rbegin(); tenant != by_size_.rend(); ++tenant) {
    for (const auto& [used_at, id] : tenants_.at(tenant->second).leaves) {
      const auto leaf = entries_.find(id);
      if (leaf->second.block.use_count() > 1) continue;
      remove(leaf);
      ++evicted_;
      return true;
    }
  }
  return false;
}

void WarmStore::forget(const std::optional<std::string>& tenant) {
  const std::lock_guard lock(mutex_);
  for (auto at = entries_.begin(); at != entries_.end();) {
    const auto next = std::next(at);
    if (!tenant || at->second.block->tenant == *tenant) remove(at);
    at = next;
  }
}

std::vector<bool> WarmStore::touch(std::span<const BlockId> chain) {
  const std::lock_guard lock(mutex_);
  std::vector<bool> here(chain.size());
  for (size_t i = chain.size(); i-- > 0;) {
    const auto found = entries_.find(chain[i]);
    if (found == entries_.end()) continue;
    here[i] = true;
    use(found->second);
  }
  return here;
}

std::shared_ptr<const WarmBlock> WarmStore::find(const BlockId& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : found->second.block;
}

std::shared_ptr<const WarmBlock> WarmStore::find(const Digest256& ns, const BlockId& id,
                                                 std::span<const int32_t> tokens) const {
  std::shared_ptr<const WarmBlock> found = find(id);
  const bool is_it = found && found->ns == ns && std::ranges::equal(found->tokens, tokens);
  return is_it ? found : nullptr;
}

WarmStats WarmStore::stats() const {
  const std::lock_guard lock(mutex_);
  return {
      .slots = slots_->slots, .blocks = entries_.size(), .evicted = evicted_, .refused = refused_};
}

void WarmStore::check() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, uint64_t> blocks;
  std::unordered_map<BlockId, uint32_t, BlockIdHash> children;
  for (const auto& [id, entry] : entries_) {
    OUTRIDER_CHECK(entry.block->id == id);
    ++blocks[entry.block->tenant];
    ++children[entry.block->parent];
    const Leaves& leaves = tenants_.at(entry.block->tenant).leaves;
    const auto leaf = leaves.find(entry.used_at);
    OUTRIDER_CHECK((leaf != leaves.end()) == is_leaf(id), entry.used_at);
    OUTRIDER_CHECK(leaf == leaves.end() || leaf->second == id, entry.used_at);
  }
  OUTRIDER_CHECK(children == children_, children.size(), children_.size());
  OUTRIDER_CHECK(blocks.size() == tenants_.size(), blocks.size(), tenants_.size());
  OUTRIDER_CHECK(by_size_.size() == tenants_.size(), by_size_.size());
  size_t leaves = 0;
  for (const auto& [name, tenant] : tenants_) {
    OUTRIDER_CHECK(tenant.blocks == blocks[name], tenant.blocks, blocks[name]);
    OUTRIDER_CHECK(by_size_.contains({tenant.blocks, name}), tenant.blocks);
    leaves += tenant.leaves.size();
  }
  OUTRIDER_CHECK(
      std::ranges::count_if(entries_, [&](const auto& entry) { return is_leaf(entry.first); }) ==
          static_cast<std::ptrdiff_t>(leaves),
      leaves);
}

}  // namespace outrider::kvstore
