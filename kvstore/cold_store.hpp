#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/limits.hpp"
#include "base/result.hpp"
#include "base/system.hpp"
#include "kvstore/cold_stats.hpp"
#include "kvstore/record.hpp"

namespace spdlog {
class logger;
}

namespace outrider::kvstore {

struct ColdStoreOptions {
  std::string directory;
  /// Bytes on disk, all files together; write buffers (a flush in progress, the log) come on top.
  uint64_t cap_bytes = uint64_t{4} << 30;
  /// Bytes of one flush. 0: cap / (limits::kv_payload_files_max / 2), from 16 to 256 MiB.
  uint64_t buffer_bytes = 0;
  /// Bytes that wait to be written. 0: twice the buffer.
  uint64_t queue_bytes = 0;
  double pinned_share = 0.2;  ///< of the cap, for pinned records and room to compact them; 0: none
  uint64_t write_bytes_per_second = uint64_t{128} << 20;  ///< 0: no limit
  uint64_t default_quota_bytes = 0;                       ///< of a tenant; 0: the cap
  std::map<std::string, uint64_t> quota_bytes;            ///< by tenant
  uint32_t read_threads = 2;
  uint32_t flush_age_ms = 2'000;  ///< a block waits no longer than that to become durable
  uint32_t use_age_ms = 30'000;   ///< nor a use: more often costs writes, a kill less order
  double gate_factor = k_gate_factor;
  bool direct_io = true;
  uint32_t touched_blocks_max = limits::kv_touched_blocks_max;
  /// Puts into the directory what else belongs there, where that is lost; called at each opening,
  /// from the store's thread. May be null.
  std::function<void()> restore = nullptr;
};

/// What enters from outside: time and randomness. Called from the store's threads.
struct Surroundings {
  const Clock& clock;
  std::function<UnixTime()> wall_time = outrider::wall_time;
  std::function<uint64_t()> random_bits = outrider::random_bits;
  std::shared_ptr<spdlog::logger> log = nullptr;  ///< null: silent
};

/// What the store tells without being asked, one call at a time, in the order in which it happened,
/// on its own threads or those that call it: blocks that will be found after a crash from now on,
/// and blocks that will not be found any more.
struct StoreEvents {
  std::function<void(std::span<const BlockId>)> published;
  std::function<void(std::span<const BlockId>)> removed;
};

struct PutOptions {
  std::string tenant;      ///< "" is the public one
  bool pin = false;        ///< never makes room, never ages out
  int64_t expires_at = 0;  ///< seconds since 1970; 0: never
  /// Counts blocks that were to be pinned and are not; null: nobody asks.
  std::shared_ptr<std::atomic<uint32_t>> pins_refused = nullptr;
};

struct ChainBlock {
  BlockId id{};
  std::vector<int32_t> tokens;  ///< what the block must hold
};

struct LoadRequest {
  Digest256 ns{};
  std::vector<ChainBlock> chain;      ///< root first
  std::optional<Duration> recompute;  ///< to compute all of `chain` instead; none: no gate
  std::optional<Duration> timeout;    ///< no read begins later
  std::shared_ptr<const std::atomic<bool>> cancelled;
};

/// A verified block. The views in `record` point into `bytes`.
struct LoadedBlock {
  RecordBytes bytes;
  RecordView record;
};

struct LoadSummary {
  uint32_t matched = 0;  ///< blocks that the index promised
  uint32_t loaded = 0;
  uint64_t bytes = 0;
  Duration took{0};
  Miss stopped = Miss::none;
};

/// `blocks` with the next blocks of the chain, any number of times, then `done` once: one call at a
/// time for one load, on the store's threads; a load that reads nothing calls `done` before `get`
/// returns, on the caller's. Neither may call `drain` or `close`.
struct LoadHandlers {
  std::function<void(std::vector<LoadedBlock>)> blocks;
  std::function<void(const LoadSummary&)> done;
};

struct PinSummary {
  uint32_t changed = 0;
  uint32_t absent = 0;
  uint32_t refused = 0;  ///< no room, or the disk failed
};

/// The cold tier: opaque blocks by content id in a RocksDB directory of bounded size that survives
/// restarts and kills. It is a cache: whatever goes wrong on disk is a miss or a block not stored,
/// with a counted reason. No call but the last three waits for the disk; all are thread-safe.
///
/// A block is announced (and found) only once it is durable. A load returns the longest prefix of
/// a chain whose records prove their id, namespace and tokens. Of a directory that does not open
/// what can be read is kept, or it is moved aside and the store starts empty; one that cannot be
/// written serves misses.
class ColdStore {
 public:
  ColdStore(ColdStoreOptions options, Surroundings surroundings, StoreEvents events = {});
  ~ColdStore();  ///< closes
  ColdStore(const ColdStore&) = delete;
  ColdStore& operator=(const ColdStore&) = delete;

  /// What a namespace is of, for people who look into the directory: kept with its first block.
  void describe(const Digest256& ns, std::string text);

  /// Notes the use of a chain, root first, whether from here or computed; element i says whether
  /// block i is worth a `put`: not stored yet, and used twice, branched from, or hinted.
  std::vector<bool> touch(std::span<const BlockId> chain, bool hint = false);
  /// Stores blocks, later. What is not stored is counted. Those that are here, or on their way, are
  /// pinned or kept as asked; one whose pin has no room is stored without.
  void put(std::vector<Block> blocks, PutOptions options);
  /// Bytes that `put` takes before it begins to skip. An empty queue takes one block of any size.
  uint64_t put_room() const;
  /// Blocks that a load of this chain would try now.
  size_t match(const Digest256& ns, std::span<const BlockId> chain) const;
  void get(LoadRequest request, LoadHandlers handlers);

  /// Pinned blocks do not make room and do not age out. `expires_at` as in PutOptions: of a block
  /// that is pinned, or that somebody wanted kept until then, the latest end holds. Refused beyond
  /// the share for pins, of which one tenant has no more than half.
  void pin(std::vector<BlockId> ids, int64_t expires_at, std::function<void(PinSummary)> done = {});
  void unpin(std::vector<BlockId> ids, std::function<void(PinSummary)> done = {});
  /// Until then at least: an earlier end moves, no other.
  void keep_until(std::vector<BlockId> ids, int64_t expires_at);
  void drop(std::vector<BlockId> ids);
  /// Drops all records of a tenant, or all there are, also those that `put` has taken before. Then
  /// `done`, on the store's thread or this one: how many, when a kill brings none back. Errors:
  /// unavailable (opening, closed, an outage); what was found until then is dropped all the same.
  void drop_all(const std::optional<std::string>& tenant,
                std::function<void(Result<uint64_t>)> done);

  ColdStats stats() const;

  /// Waits until the directory is open, or known not to be, but no longer than that; whether it is.
  /// Until then loads are misses.
  bool wait_open(Duration most);
  /// Returns when the directory is open (or known not to be) and all that was put before is
  /// durable or given up.
  void drain();
  /// For who is about to close it: nobody waits for answers any more, and writes take what the disk
  /// gives.
  void lift_write_limit();
  /// Finishes what is queued and running, marks the directory as cleanly closed. Later calls are
  /// misses and skips. Idempotent.
  void close();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace outrider::kvstore
