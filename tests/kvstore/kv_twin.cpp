// The index with its quotas and the admission filter beside naive models: tests/kvstore/README.md.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "kvstore/admission.hpp"
#include "kvstore/cold_index.hpp"

namespace outrider::kvstore {
namespace {

constexpr uint32_t k_ids = 96;
constexpr uint32_t k_tenants = 5;
constexpr IndexLimits k_limits{64, 100, 900};

BlockId id_of(uint32_t number) {
  return Sha256().update(uint64_t{number}).finish();
}

/// Everything by looking through everything.
class NaiveIndex {
 public:
  struct Entry {
    BlockId id{};
    Row row;
    uint64_t used = 0;  ///< order of use, larger is later
    uint32_t failed_reads = 0;
  };
  struct Promise {
    BlockId id{};
    Row row;
  };
  struct Dead {
    uint64_t until = 0;  ///< with this sequence it is gone from the files
    uint64_t tenant = 0;
    uint64_t bytes = 0;
  };
  std::vector<Entry> entries;
  std::vector<Promise> promises;
  std::vector<Dead> dead;
  uint64_t leaving = 0;  ///< what was written before falls out before long,
  uint64_t next = 0;     ///< and before this at any time
  uint64_t cap = 0;
  std::map<uint64_t, uint64_t> owed, spared_until;
  std::map<uint64_t, uint64_t> quotas;
  std::map<uint64_t, uint64_t> over_quota;
  uint64_t uses = 0;

  Entry* find(const BlockId& id) {
    for (Entry& entry : entries) {
      if (entry.id == id) return &entry;
    }
    return nullptr;
  }
  uint64_t quota(uint64_t tenant) const {
    const auto found = quotas.find(tenant);
    return found == quotas.end() ? k_limits.default_quota_bytes : found->second;
  }
  uint64_t sum(uint64_t tenant, bool pinned_only) const {
    uint64_t bytes = 0;
    for (const Entry& entry : entries) {
      if (entry.row.tenant != tenant) continue;
      if (!pinned_only || entry.row.place == Place::pinned) bytes += entry.row.bytes;
    }
    return bytes;
  }
  uint64_t promised(uint64_t tenant) const {
    uint64_t bytes = 0;
    for (const Promise& promise : promises)
      bytes += promise.row.tenant == tenant ? promise.row.bytes : 0;
    return bytes;
  }
  uint64_t dead_bytes(uint64_t tenant) const {
    uint64_t bytes = 0;
    for (const Dead& one : dead) bytes += one.tenant == tenant ? one.bytes : 0;
    return bytes;
  }
  void note_dead(const Row& row) {
    if (row.place == Place::fifo) dead.push_back({row.sequence | 63, row.tenant, row.bytes});
  }
  /// More than its quota in the files.
  bool has_too_much(const Row& row) const {
    const uint64_t tenant = row.tenant;
    const uint64_t in_files = sum(tenant, false) - sum(tenant, true) + promised(tenant);
    return row.place == Place::fifo && in_files + dead_bytes(tenant) + row.bytes > quota(tenant);
  }
  /// Others' records of which the files lose the oldest.
  std::vector<Entry> others_before(uint64_t tenant, uint64_t sequence) const {
    std::vector<Entry> others;
    for (const Entry& entry : entries) {
      const bool leaves = entry.row.place == Place::fifo && entry.row.sequence < sequence;
      if (leaves && entry.row.tenant != tenant) others.push_back(entry);
    }
    std::sort(others.begin(), others.end(),
              [](const Entry& a, const Entry& b) { return a.row.sequence < b.row.sequence; });
    return others;
  }
  bool crowds(const Row& row) const {
    return has_too_much(row) && !others_before(row.tenant, next).empty();
  }
  /// A fifth of the files is left of what others have in them.
  bool may_move_others(uint64_t tenant) const {
    uint64_t others = 0;
    for (const Entry& entry : others_before(tenant, UINT64_MAX)) others += entry.row.bytes;
    return others <= cap / 5 * 4;
  }
  /// For a row that is promised room.
  std::vector<BlockId> spare(const Row& row, const std::set<BlockId>& moving) {
    std::vector<BlockId> ids;
    Row nothing = row;
    nothing.bytes = 0;
    if (!has_too_much(nothing) || !may_move_others(row.tenant)) return ids;
    uint64_t& debt = owed[row.tenant];
    debt += 4 * row.bytes;
    for (const Entry& entry : others_before(row.tenant, leaving)) {
      if (entry.row.sequence < spared_until[row.tenant]) continue;
      if (!moving.contains(entry.id)) {
        if (entry.row.bytes > debt) return ids;
        debt -= entry.row.bytes;
        ids.push_back(entry.id);
      }
      spared_until[row.tenant] = entry.row.sequence + 1;
    }
    debt = 0;
    return ids;
  }
  bool is_continued(const BlockId& id) const {
    const auto continues = [&](const auto& other) { return other.row.parent == short_of(id); };
    return std::any_of(entries.begin(), entries.end(), continues) ||
           std::any_of(promises.begin(), promises.end(), continues);
  }
  /// Of the chain that a row continues: bytes that could make room, but not for it.
  uint64_t kept(const Row& row) const {
    for (const Entry& entry : entries) {
      if (short_of(entry.id) != row.parent || entry.row.tenant != row.tenant) continue;
      return kept(entry.row) + (entry.row.place == Place::fifo ? entry.row.bytes : 0);
    }
    for (const Promise& promise : promises) {
      if (short_of(promise.id) == row.parent && promise.row.tenant == row.tenant) {
        return kept(promise.row);
      }
    }
    return 0;
  }
  std::vector<BlockId> order(uint64_t tenant) const {
    std::vector<Entry> mine;
    for (const Entry& entry : entries) {
      if (entry.row.tenant != tenant || entry.row.place != Place::fifo) continue;
      if (!is_continued(entry.id)) mine.push_back(entry);
    }
    std::sort(mine.begin(), mine.end(),
              [](const Entry& a, const Entry& b) { return a.used < b.used; });
    std::vector<BlockId> ids;
    for (const Entry& entry : mine) ids.push_back(entry.id);
    return ids;
  }
  void erase(const BlockId& id) {
    if (const Entry* entry = find(id)) note_dead(entry->row);
    std::erase_if(entries, [&](const Entry& entry) { return entry.id == id; });
  }
  Room reserve(const BlockId& id, const Row& row, std::vector<BlockId>& evicted) {
    if (find(id) != nullptr) return Room::duplicate;
    const uint64_t tenant = row.tenant;
    const std::vector<Entry> entries_before = entries;
    const std::vector<Dead> dead_before = dead;
    const auto full = [&] { return entries.size() + promises.size() >= k_limits.rows_max; };
    const auto over = [&] {
      return sum(tenant, false) + promised(tenant) + row.bytes > quota(tenant);
    };
    if ((over() || full()) &&
        sum(tenant, true) + promised(tenant) + kept(row) + row.bytes > quota(tenant)) {
      return Room::over_quota;
    }
    while (over() || full()) {
      auto leaves = order(tenant);
      std::erase_if(leaves, [&](const BlockId& leaf) { return short_of(leaf) == row.parent; });
      if (leaves.empty()) {
        const Room room = full() ? Room::index_full : Room::over_quota;
        entries = entries_before;
        dead = dead_before;
        evicted.clear();
        return room;
      }
      evicted.push_back(leaves.front());
      erase(evicted.back());
    }
    if (crowds(row)) {
      entries = entries_before;
      dead = dead_before;
      evicted.clear();
      return Room::dead_bytes;
    }
    promises.push_back({id, row});
    return Room::granted;
  }
};

/// The same generations, kept as lists.
class NaiveAdmission {
 public:
  explicit NaiveAdmission(size_t generation) : generation_(generation) {}

  std::vector<bool> touch(const std::vector<BlockId>& chain, bool hint) {
    std::vector<bool> wanted;
    for (size_t i = 0; i < chain.size(); ++i) {
      Entry& entry = take(chain[i]);
      ++entry.count;
      if (i + 1 < chain.size()) entry.children.insert(chain[i + 1]);
      wanted.push_back(hint || entry.count >= 2 || entry.children.size() >= 2);
    }
    return wanted;
  }

 private:
  struct Entry {
    BlockId id{};
    uint32_t count = 0;
    std::set<BlockId> children;
  };
  size_t generation_;
  std::vector<Entry> young_, old_;

  Entry& take(const BlockId& id) {
    for (Entry& entry : young_) {
      if (entry.id == id) return entry;
    }
    Entry entry;
    entry.id = id;
    for (size_t i = 0; i < old_.size(); ++i) {
      if (old_[i].id != id) continue;
      entry = old_[i];
      old_.erase(old_.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
    if (young_.size() >= generation_) old_ = std::exchange(young_, {});
    young_.push_back(entry);
    return young_.back();
  }
};

class Twins {
 public:
  explicit Twins(uint64_t seed) : random_(seed) {
    for (uint32_t i = 0; i < k_ids; ++i) ids_.push_back(id_of(i));
    index_.set_quota(3, 300);
    naive_.quotas[3] = 300;
  }

  void step() {
    ++now_;
    switch (random_.below(14)) {
      case 0:
      case 1:
      case 2:
        return reserve();
      case 3:
      case 4:
      case 5:
        return keep_promise();
      case 6:
        return use();
      case 7:
        return move();
      case 8:
        return erase();
      case 9:
        return set_expiry();
      case 10:
        return leave();
      case 11:
        return read();
      case 12:
        return change_quota();
      default:
        return touch();
    }
  }

  uint64_t crowded() const { return crowded_; }
  uint64_t spared() const { return spared_; }

  void compare() {
    OUTRIDER_CHECK(index_.consistent());
    OUTRIDER_CHECK(index_.rows() == naive_.entries.size());
    uint64_t bytes = 0, pinned = 0, promised = 0;
    for (const auto& entry : naive_.entries) {
      const Row* row = index_.find(entry.id);
      OUTRIDER_CHECK(row != nullptr && *row == entry.row);
      bytes += row->bytes;
      pinned += row->place == Place::pinned ? row->bytes : 0;
    }
    for (const auto& promise : naive_.promises) promised += promise.row.bytes;
    OUTRIDER_CHECK(bytes == index_.bytes() && pinned == index_.pinned_bytes());
    OUTRIDER_CHECK(promised == index_.reserved_bytes());
    for (uint64_t tenant = 1; tenant <= k_tenants; ++tenant) {
      OUTRIDER_CHECK(index_.eviction_order(tenant) == naive_.order(tenant), tenant);
    }
    for (const TenantUse& use : index_.tenants()) {
      OUTRIDER_CHECK(use.bytes == naive_.sum(use.tenant, false), use.tenant, use.bytes);
      OUTRIDER_CHECK(use.pinned_bytes == naive_.sum(use.tenant, true), use.tenant);
      OUTRIDER_CHECK(use.pinned_bytes == index_.pinned_bytes(use.tenant), use.tenant);
      OUTRIDER_CHECK(use.dead_bytes == naive_.dead_bytes(use.tenant), use.tenant, use.dead_bytes);
      OUTRIDER_CHECK(use.quota_bytes == naive_.quota(use.tenant), use.tenant, use.quota_bytes);
      OUTRIDER_CHECK(use.over_quota == naive_.over_quota[use.tenant], use.tenant, use.over_quota);
    }
  }

 private:
  Random random_;
  std::vector<BlockId> ids_;
  ColdIndex index_{k_limits};
  NaiveIndex naive_;
  Admission admission_{32};
  NaiveAdmission naive_admission_{16};
  std::vector<BlockId> promised_ids_;  // in the order of naive_.promises
  uint64_t sequence_ = 0, crowded_ = 0, spared_ = 0;
  int64_t now_ = 0;

  const BlockId& any_id() { return ids_[random_.below(k_ids)]; }
  /// Each id continues the one before it.
  Row row_of(const BlockId& id, uint64_t tenant, uint64_t bytes) const {
    const auto at = std::find(ids_.begin(), ids_.end(), id) - ids_.begin();
    Row row;
    row.tenant = tenant;
    row.bytes = static_cast<uint32_t>(bytes);
    row.depth = static_cast<uint32_t>(at);
    row.parent = at == 0 ? 0 : short_of(ids_[static_cast<size_t>(at) - 1]);
    return row;
  }
  std::vector<BlockId> any_chain() {
    std::vector<BlockId> chain;
    const uint32_t first = random_.below(k_ids);
    const uint32_t length = 1 + random_.below(6);
    for (uint32_t i = 0; i < length; ++i) chain.push_back(ids_[(first + i) % k_ids]);
    return chain;
  }

  void reserve() {
    const BlockId id = any_id();
    if (std::find(promised_ids_.begin(), promised_ids_.end(), id) != promised_ids_.end()) return;
    const uint64_t tenant = 1 + random_.below(k_tenants);
    const uint64_t bytes = 1 + random_.below(random_.chance(0.05f) ? 1200 : 90);
    std::vector<BlockId> evicted, naive_evicted;
    Row row = row_of(id, tenant, bytes);
    row.place = random_.chance(0.15f) ? Place::pinned : Place::fifo;
    const Room room = index_.reserve(id, row, evicted);
    OUTRIDER_CHECK(room == naive_.reserve(id, row, naive_evicted));
    OUTRIDER_CHECK(evicted == naive_evicted);
    if (room == Room::granted) promised_ids_.push_back(id);
    if (room == Room::granted && row.place == Place::fifo) spare(id, row);
    if (room == Room::dead_bytes) look_for_oldest(row);
    crowded_ += room == Room::dead_bytes ? 1 : 0;
    if (room != Room::over_quota) return;
    index_.count_over_quota(tenant);
    ++naive_.over_quota[tenant];
  }

  void look_for_oldest(const Row& row) {
    const auto others = naive_.others_before(row.tenant, naive_.next);
    const auto oldest = index_.oldest_to_spare(row);
    OUTRIDER_CHECK(index_.crowds(row) && oldest.has_value() == naive_.may_move_others(row.tenant));
    if (!oldest) return;
    OUTRIDER_CHECK(*oldest == others.front().row.sequence);
    std::vector<BlockId> until;
    for (const auto& entry : naive_.others_before(row.tenant, *oldest + 5)) {
      until.push_back(entry.id);
    }
    OUTRIDER_CHECK(index_.others_until(row, *oldest + 4) == until);
  }

  /// Most of what should move does.
  void spare(const BlockId& id, const Row& row) {
    std::set<BlockId> moving;
    for (uint32_t i = random_.below(4); i > 0; --i) moving.insert(any_id());
    const auto moves = [&](const BlockId& one) { return moving.contains(one); };
    const auto spared = index_.spare(id, row, moves);
    OUTRIDER_CHECK(spared == naive_.spare(row, moving));
    spared_ += spared.size();
    for (const BlockId& one : spared) {
      if (random_.chance(0.2f)) continue;
      auto* entry = naive_.find(one);
      entry->row.sequence = ++sequence_;
      entry->failed_reads = 0;
      index_.move(one, Place::fifo, entry->row.sequence);
    }
  }

  void keep_promise() {
    if (promised_ids_.empty()) return;
    const size_t at = random_.below(static_cast<uint32_t>(promised_ids_.size()));
    const auto offset = static_cast<ptrdiff_t>(at);
    const BlockId id = promised_ids_[at];
    const auto promise = naive_.promises[at];
    promised_ids_.erase(promised_ids_.begin() + offset);
    naive_.promises.erase(naive_.promises.begin() + offset);
    index_.release(id);
    if (random_.chance(0.2f)) return;  // the write failed
    Row row = promise.row;
    row.ns = 1 + random_.below(2);
    row.sequence = row.place == Place::pinned ? 0 : ++sequence_;
    row.expires_at = random_.chance(0.2f) ? now_ + random_.below(400) + 1 : 0;
    OUTRIDER_CHECK(index_.insert(id, row));
    naive_.entries.push_back({id, row, ++naive_.uses, 0});
  }

  void use() {
    const auto chain = any_chain();
    const uint64_t ns = 1 + random_.below(2);
    size_t matched = 0;
    for (const BlockId& id : chain) {
      const auto* entry = naive_.find(id);
      const bool here = entry != nullptr && entry->row.ns == ns &&
                        (entry->row.expires_at == 0 || entry->row.expires_at > now_);
      if (!here) break;
      ++matched;
    }
    OUTRIDER_CHECK(index_.match(ns, chain, now_) == matched);
    index_.use(chain, now_);
    for (size_t i = chain.size(); i-- > 0;) {
      if (auto* entry = naive_.find(chain[i])) {
        ++entry->row.hits;
        entry->row.used_at = now_;
        entry->used = ++naive_.uses;
      }
    }
  }

  void move() {
    auto* entry = naive_.find(any_id());
    if (entry == nullptr) return;
    const Place place = random_.chance(0.3f) ? Place::pinned : Place::fifo;
    if (place == Place::pinned) naive_.note_dead(entry->row);
    if (entry->row.place != place) entry->used = ++naive_.uses;
    entry->row.place = place;
    entry->row.sequence = place == Place::pinned ? 0 : ++sequence_;
    entry->failed_reads = 0;
    index_.move(entry->id, place, entry->row.sequence);
  }

  void erase() {
    const BlockId id = any_id();
    OUTRIDER_CHECK(index_.erase(id) == (naive_.find(id) != nullptr));
    naive_.erase(id);
  }

  void set_expiry() {
    const BlockId id = any_id();
    const int64_t at = random_.chance(0.3f) ? 0 : now_ + random_.below(400) + 1;
    index_.set_expiry(id, at);
    if (auto* entry = naive_.find(id)) entry->row.expires_at = at;
  }

  /// Files leave the FIFO, times pass.
  void leave() {
    std::set<BlockId> expected;
    const uint64_t oldest = sequence_ > 60 ? sequence_ - 40 - random_.below(20) : 0;
    for (const auto& entry : naive_.entries) {
      const bool aged = entry.row.place == Place::fifo && entry.row.sequence < oldest;
      const bool expired = entry.row.expires_at != 0 && entry.row.expires_at <= now_;
      if (aged || expired) expected.insert(entry.id);
    }
    std::vector<BlockId> aged;
    std::vector<std::pair<BlockId, Place>> expired;
    index_.age_out(oldest, aged);
    index_.expire(now_, expired);
    std::set<BlockId> gone(aged.begin(), aged.end());
    for (const auto& [id, place] : expired) gone.insert(id);
    OUTRIDER_CHECK(gone == expected && aged.size() + expired.size() == expected.size());
    std::erase_if(naive_.entries, [&](const auto& entry) {
      return std::find(aged.begin(), aged.end(), entry.id) != aged.end();
    });
    for (const auto& [id, place] : expired) naive_.erase(id);
    std::erase_if(naive_.dead, [&](const auto& one) { return one.until < oldest; });
    note_leaving();
  }

  void note_leaving() {
    const uint64_t before = sequence_ > 40 ? sequence_ - random_.below(40) : 0;
    const uint64_t next =
        before - random_.below(static_cast<uint32_t>(std::min<uint64_t>(before, 30)) + 1);
    naive_.cap = 500 + random_.below(12'000);
    index_.note_leaving({before, next, naive_.cap});
    naive_.leaving = std::max(naive_.leaving, before);
    naive_.next = std::max(naive_.next, next);
  }

  void read() {
    auto* entry = naive_.find(any_id());
    if (entry == nullptr) return;
    if (random_.chance(0.5f)) {
      OUTRIDER_CHECK(index_.count_failed_read(entry->id) == ++entry->failed_reads);
    } else {
      index_.forgive_failed_reads(entry->id);
      entry->failed_reads = 0;
    }
  }

  /// A smaller one holds from the next record on, or at once.
  void change_quota() {
    if (!random_.chance(0.02f)) return;
    naive_.quotas[4] = 100 + random_.below(900);
    index_.set_quota(4, naive_.quotas[4]);
    if (!random_.chance(0.5f)) return;
    std::vector<BlockId> evicted;
    index_.trim(evicted);
    for (const BlockId& id : evicted) {
      const auto order = naive_.order(4);
      OUTRIDER_CHECK(!order.empty() && order.front() == id);
      OUTRIDER_CHECK(naive_.sum(4, false) > naive_.quota(4));
      naive_.erase(id);
    }
    OUTRIDER_CHECK(naive_.sum(4, false) <= naive_.quota(4) || naive_.order(4).empty());
  }

  void touch() {
    const auto chain = any_chain();
    const bool hint = random_.chance(0.05f);
    OUTRIDER_CHECK(admission_.touch(chain, hint) == naive_admission_.touch(chain, hint));
  }
};

}  // namespace
}  // namespace outrider::kvstore

int main(int argc, char** argv) {
  uint64_t operations = 200'000, seed = 1;
  CLI::App app("The KV store's index and admission beside naive models");
  app.add_option("--operations", operations, "how many");
  app.add_option("--seed", seed, "of everything random");
  CLI11_PARSE(app, argc, argv);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  outrider::kvstore::Twins twins(seed);
  for (uint64_t i = 0; i < operations; ++i) {
    twins.step();
    if (i % 64 == 0) twins.compare();
  }
  twins.compare();
  std::printf("%llu operations, no difference; %llu refused for dead bytes, %llu spared\n",
              static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(twins.crowded()),
              static_cast<unsigned long long>(twins.spared()));
  return 0;
}
