#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvstore/index_row.hpp"

namespace outrider::kvstore {

/// Why a record may not come in.
enum class Room : uint8_t { granted, duplicate, over_quota, index_full, dead_bytes };

struct IndexLimits {
  uint32_t rows_max = 0;
  uint32_t tenants_max = 0;
  uint64_t default_quota_bytes = 0;  ///< of a tenant without one of its own
};

/// What leaves the FIFO's files, by the number of the write. Both numbers only grow.
struct Leaving {
  uint64_t soon = 0;  ///< what was written before falls out before long,
  uint64_t next = 0;  ///< and before this at any time
  uint64_t cap_bytes = 0;
};

struct TenantUse {
  std::optional<std::string> name;         ///< of those with a quota of their own
  std::optional<std::string> stored_name;  ///< of those that the store has written down, in part
  uint64_t tenant = 0;
  uint64_t rows = 0;
  uint64_t bytes = 0;
  uint64_t pinned_bytes = 0;
  uint64_t dead_bytes = 0;  ///< of records that left the index, in files that are still here
  uint64_t quota_bytes = 0;
  uint64_t over_quota = 0;  ///< blocks that did not come in
};

/// Which records the store has, whose they are, and who goes when room is needed: of each tenant's
/// own records that no other here continues, the least recently used first. So chains get shorter
/// from their end, and what is left can be matched. Pinned records never make room.
///
/// What left the index stays in the files until these fall out of the FIFO, and pushes others' out.
/// So a tenant that has more than its quota in them, alive and dead, pays for what it brings:
/// others' records that fall out before long move to the end (`spare`). While some are about to, it
/// brings nothing (`dead_bytes`), and they move (`oldest_to_spare`). Where others' living records
/// leave less than a fifth of the files nothing moves: a lap of the files would cost more than four
/// times what it brings. What was dead before a start, and what moved, counts for nobody.
/// Pure state: no clock, no disk; owned by one thread or guarded by its owner.
class ColdIndex {
 public:
  explicit ColdIndex(IndexLimits limits) : limits_(limits) {}

  const Row* find(const BlockId& id) const;
  /// Length of the longest prefix of a chain that is here, of this namespace and not expired.
  size_t match(uint64_t ns, std::span<const BlockId> chain, int64_t now) const;
  /// Counts a use of each block of a chain (root first).
  void use(std::span<const BlockId> chain, int64_t now);

  /// Promises room for a record on its way here, until `release` (then `insert`, if it came). The
  /// records that left to make it are appended to `evicted`; what the new one continues, or another
  /// that is promised room, is never among them. Unless it is granted, nothing leaves.
  Room reserve(const BlockId& id, const Row& row, std::vector<BlockId>& evicted);
  void release(const BlockId& id);

  /// Newest of its tenant. The id must not be here. Returns false (and does nothing) if the index
  /// is full or knows another FIFO row of this sequence: only for rows that are read back at start.
  bool insert(const BlockId& id, const Row& row);
  bool erase(const BlockId& id);
  /// The record was written again: later, or elsewhere, then it counts as used last.
  void move(const BlockId& id, Place place, uint64_t sequence);
  void set_expiry(const BlockId& id, int64_t expires_at);
  /// How often in a row a record could not be read, this time included.
  uint32_t count_failed_read(const BlockId& id);
  void forgive_failed_reads(const BlockId& id);
  void set_quota(uint64_t tenant, uint64_t bytes);
  /// Evicts what is over a quota, as `reserve` would; ids are appended.
  void trim(std::vector<BlockId>& evicted);
  void count_over_quota(uint64_t tenant) { ++account(tenant).over_quota; }

  void note_leaving(const Leaving& leaving);
  /// Whether this FIFO record, which is not promised room, would push out others' that fall out
  /// next by what its tenant has too much in the files.
  bool crowds(const Row& row);
  /// Others' records that are to move for the sake of this one, which comes: the oldest first, up
  /// to some times its bytes. Those that move already are not among them, and none is named twice.
  std::vector<BlockId> spare(const BlockId& id, const Row& row,
                             const std::function<bool(const BlockId&)>& moves);
  /// Of a row that crowds others: the oldest of theirs, if it may move.
  std::optional<uint64_t> oldest_to_spare(const Row& row);
  /// Others' FIFO records that were written until `last`.
  std::vector<BlockId> others_until(const Row& row, uint64_t last);
  /// The files are others from now on. There are no rows.
  void forget_files();
  /// Removes FIFO rows written before `oldest_sequence`, and rows that expired; ids are appended.
  void age_out(uint64_t oldest_sequence, std::vector<BlockId>& removed);
  void expire(int64_t now, std::vector<std::pair<BlockId, Place>>& removed);
  bool any_expired(int64_t now) const {
    return !by_expiry_.empty() && by_expiry_.begin()->first.first <= now;
  }

  size_t rows() const { return nodes_.size(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t pinned_bytes() const { return pinned_bytes_; }
  uint64_t pinned_bytes(uint64_t tenant) const;
  uint64_t reserved_bytes() const { return reserved_bytes_; }
  std::vector<TenantUse> tenants() const;
  std::vector<std::pair<BlockId, Row>> all() const;
  /// The records of a tenant, or all.
  std::vector<BlockId> ids(std::optional<uint64_t> tenant) const;
  /// The records of a tenant that make room, first to go first.
  std::vector<BlockId> eviction_order(uint64_t tenant) const;
  /// Conservation: every list and sum agrees with the rows. For tests.
  bool consistent() const;

 private:
  struct Node {
    Row row;
    uint64_t used = 0;  ///< order of use
    uint32_t failed_reads = 0;
  };
  struct Account {
    std::map<uint64_t, BlockId> leaves;  ///< what can make room, by order of use
    uint64_t rows = 0, bytes = 0, pinned_bytes = 0, reserved_bytes = 0;
    uint64_t dead_bytes = 0;
    uint64_t first_of_others = 0;  ///< they have no FIFO row before it
    uint64_t spared_until = 0;     ///< theirs before it were named by `spare`
    uint64_t owed_bytes = 0;       ///< of others' records, to be moved
    uint64_t quota_bytes = 0, over_quota = 0;
  };
  /// What `reserve` has to make.
  struct Missing {
    uint64_t bytes = 0;
    uint64_t rows = 0;
  };
  /// What becomes of a record's bytes in the files.
  enum class Bytes : uint8_t { dead, gone };
  using Nodes = std::unordered_map<BlockId, Node, BlockIdHash>;

  IndexLimits limits_;
  Nodes nodes_;
  std::map<uint64_t, Account> accounts_;
  std::map<uint64_t, BlockId> by_sequence_;  // FIFO rows
  std::map<std::pair<int64_t, BlockId>, bool> by_expiry_;
  // By short id, as rows name their parents.
  std::unordered_map<uint64_t, BlockId> by_short_;
  std::unordered_map<uint64_t, uint32_t> children_;  // of both
  std::unordered_map<BlockId, Row, BlockIdHash> promised_;
  std::unordered_map<uint64_t, BlockId> promised_by_short_;
  // Bytes of records that left, by the last sequence of their span and tenant.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> dead_;
  Leaving leaving_;
  uint64_t uses_ = 0;
  uint64_t bytes_ = 0, pinned_bytes_ = 0, reserved_bytes_ = 0;

  Account& account(uint64_t tenant);
  Room find_victims(const Account& owner, uint64_t kept, Missing missing,
                    std::vector<BlockId>& victims);
  bool has_too_much(const Account& owner, uint64_t bytes) const;
  bool crowds_others(Account& owner, uint64_t bytes);
  bool may_move_others(const Account& owner) const;
  bool is_of(const Account& owner, const BlockId& id);
  void note_dead(const Row& row);
  void attach(Node& node, const BlockId& id);
  void detach(Node& node, Bytes left);
  void set_used(Node& node, const BlockId& id);
  void update_leaf(const BlockId& id, Node& node);
  void add_child(uint64_t parent);
  void drop_child(uint64_t parent);
  void update_parent(uint64_t parent);
  const Row* parent_of(const Row& row) const;
  uint64_t bytes_kept_for(const Row& row) const;
  void erase(Nodes::iterator at, Bytes left);
};

}  // namespace outrider::kvstore
