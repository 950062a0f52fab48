#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "kvstore/admission.hpp"
#include "kvstore/cold_index.hpp"
#include "kvstore/cold_store.hpp"
#include "kvstore/database.hpp"
#include "kvstore/store_log.hpp"

namespace outrider::kvstore {

/// What the store's threads and its callers share. `mutex` guards everything below it and is held
/// for table look-ups only, never over the disk or a callback.
struct StoreCore {
  StoreCore(ColdStoreOptions given, Surroundings outside, StoreEvents told);

  const ColdStoreOptions options;  ///< with each 0 replaced by what it means
  const Surroundings surroundings;
  const StoreEvents events;
  StoreLog log;  ///< thread-safe by itself; never called under the mutex

  mutable std::mutex mutex;
  ColdIndex index;
  Admission admission;
  std::shared_ptr<Database> database;  ///< null: unavailable. Readers hold a copy while they read
  using Ids = std::unordered_set<BlockId, BlockIdHash>;
  Ids in_flight;  ///< put or moving, neither published nor given up
  Ids used;       ///< rows whose last use or time to live is not on disk yet
  ReadSpeed speed;
  ColdCounters counters;
  Outage outage = Outage::opening;
  std::string outage_text;
  std::string store_uuid;
  PayloadFiles files;
  uint64_t deleted_files = 0;  ///< by another program, while they are open
  /// By number, of limits::kv_tenant_names_max of those that have stored.
  std::map<uint64_t, std::string> tenant_names;

  int64_t now_s() const { return surroundings.wall_time().time_since_epoch().count(); }
  void count_dropped_job();
  void note_files(const PayloadFiles& now);  ///< under the mutex
  /// Whoever changes the index notes what others find from now on, or not any more, while it holds
  /// the mutex, and tells when it does not: so events come in the order of the changes.
  void note_published(std::span<const BlockId> ids) { note(true, ids); }
  void note_removed(std::span<const BlockId> ids) { note(false, ids); }
  /// Calls back with all that was noted, unless another thread is at it, which then does.
  void tell();
  /// Returns when all that was noted before is told.
  void wait_told();
  /// For when a row was found wrong: erases it if it is still this one, notes it and calls
  /// `forget`, all in one step: whoever puts the block again comes after. True if it was.
  bool erase_if_same(const BlockId& id, const Row& row, Removal why,
                     const std::function<void()>& forget);
  /// The system could not read this record. Erased like that if it was once too often.
  bool erase_if_unreadable(const BlockId& id, const Row& row, const std::function<void()>& forget);

 private:
  struct Event {
    bool published = false;
    std::vector<BlockId> ids;
  };
  std::vector<Event> untold_;  // guarded by the mutex, like `telling_`
  bool telling_ = false;
  std::condition_variable told_;

  void note(bool published, std::span<const BlockId> ids);
};

/// Families' shares of the cap.
struct Shares {
  uint64_t payload_bytes = 0;
  uint64_t pinned_bytes = 0;  ///< of live records; as much again for their compaction
};
Shares shares_of(const ColdStoreOptions& options, uint64_t quarantine_bytes);

}  // namespace outrider::kvstore
