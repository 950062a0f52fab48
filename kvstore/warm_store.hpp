#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/block_id.hpp"
#include "base/shared_bytes.hpp"

namespace outrider::kvstore {

/// A block as a warm store has it.
struct WarmBlock {
  Digest256 ns{};
  BlockId id{};
  BlockId parent{};  ///< the id before it in its chain
  uint32_t depth = 0;
  uint32_t layers = 0;
  std::string tenant;
  std::vector<int32_t> tokens;
  SharedBytes k;
  SharedBytes v;
};

struct WarmStats {
  uint64_t slots = 0;
  uint64_t blocks = 0;   ///< that can be found now
  uint64_t evicted = 0;  ///< since the start
  uint64_t refused = 0;  ///< for which every slot was being read or written
};

/// Blocks in memory of the host, by content id: a slab of equal slots, one block each. Who needs a
/// slot takes the least recently used leaf of the tenant that has the most blocks: so each tenant
/// keeps its share, whatever the others bring, and no chain loses its head before its end. A slot
/// that somebody reads stays as it is until he is done. Thread-safe; no call waits for more than
/// another one.
class WarmStore {
 public:
  /// `memory` has room for `slots` of `slot_bytes` each.
  WarmStore(std::shared_ptr<std::byte> memory, size_t slot_bytes, size_t slots);
  ~WarmStore();
  WarmStore(const WarmStore&) = delete;
  WarmStore& operator=(const WarmStore&) = delete;

  /// A slot that nobody uses, free again with its last owner; null: all are in use.
  std::shared_ptr<std::byte> slot();
  size_t slot_bytes() const;
  /// Its bytes lie in a slot. One whose id is here already changes nothing.
  void put(WarmBlock block);
  /// Element i: block i of this chain is here. Those that are become the youngest.
  std::vector<bool> touch(std::span<const BlockId> chain);
  /// The block with this id, if it is of this namespace and holds these tokens; else null.
  std::shared_ptr<const WarmBlock> find(const Digest256& ns, const BlockId& id,
                                        std::span<const int32_t> tokens) const;
  std::shared_ptr<const WarmBlock> find(const BlockId& id) const;
  /// Forgets all blocks of a tenant, or of all.
  void forget(const std::optional<std::string>& tenant);
  WarmStats stats() const;

  /// Aborts unless counts, links and orders agree with the blocks.
  void check() const;

 private:
  struct Slots;
  struct Entry {
    std::shared_ptr<const WarmBlock> block;
    uint64_t used_at = 0;
  };
  /// Leaves by when they were used last.
  using Leaves = std::map<uint64_t, BlockId>;
  struct Tenant {
    uint64_t blocks = 0;
    Leaves leaves;
  };

  bool is_leaf(const BlockId& id) const { return !children_.contains(id); }
  void use(Entry& entry);
  void remove(std::unordered_map<BlockId, Entry, BlockIdHash>::iterator at);
  void count(Tenant& tenant, const std::string& name, int64_t more);
  bool evict();

  const std::shared_ptr<Slots> slots_;
  mutable std::mutex mutex_;
  std::unordered_map<BlockId, Entry, BlockIdHash> entries_;
  std::unordered_map<BlockId, uint32_t, BlockIdHash> children_;  ///< that are here, of any id
  std::map<std::string, Tenant> tenants_;
  std::set<std::pair<uint64_t, std::string>> by_size_;  ///< tenants by blocks
  uint64_t uses_ = 0;
  uint64_t evicted_ = 0;
  uint64_t refused_ = 0;
};

}  // namespace outrider::kvstore
