#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/store_load_seconds.hpp"
#include "kvstore/cold_index.hpp"
#include "kvstore/load_gate.hpp"

namespace outrider::kvstore {

/// Why a load ended before the end of its chain. Each load counts one.
enum class Miss : uint8_t {
  none,             ///< it did not: every block came
  absent,           ///< no row: never stored, evicted, or another secret's ids; no block came
  partial,          ///< some blocks came, and there is no row for the next
  other_namespace,  ///< the id is here, but of another model or numerics
  expired,          ///< its time to live is over
  gated,            ///< computing again is expected to be as fast
  timed_out,        ///< the load's own stop rule
  cancelled,        ///< the caller gave up
  aged_out,         ///< its file fell out of the FIFO
  corrupt,          ///< a check sum, a size or an id is wrong, or it is lost; the row is dropped
  wrong_tokens,     ///< an intact record of other tokens; the row is dropped
  io_error,         ///< the system could not read; the row is dropped when that lasts
  unavailable,      ///< no database: opening, read-only, full, closing
  overloaded,       ///< too many loads wait
  count_
};

/// Why a block was not stored. Each block counts one.
enum class Skip : uint8_t {
  queue_full,    ///< writes are slower than what comes; the newest goes
  duplicate,     ///< already stored or on its way
  invalid,       ///< breaks a rule of kvstore/record.hpp, too large included
  over_quota,    ///< the tenant's quota is full of what cannot leave
  dead_bytes,    ///< the tenant has more than its quota in the files, and others' fall out next
  index_full,    ///< limits::kv_index_rows_max
  orphan,        ///< what it continues is not here: nothing would ever match it
  write_failed,  ///< the disk refused it, then or at its flush
  unavailable,   ///< no database, or it cannot write at present
  count_
};

/// Why a row left the index.
enum class Removal : uint8_t {
  quota,
  aged_out,
  expired,
  corrupt,  ///< its record was, or was lost with a damaged directory
  dropped,
  unreadable,  ///< the system could not read its record several times in a row
  count_
};

/// Why there is no database, or none that can be written. From `read_only` on each that begins is
/// counted.
enum class Outage : uint8_t {
  none,
  opening,
  closed,
  read_only,  ///< no right to write in the directory
  no_space,   ///< the disk is full
  damaged,    ///< it could not be moved aside
  in_use,     ///< another process, or another store of this one, has the directory
  io_error,
  count_
};

std::string_view to_string(Miss reason);
std::string_view to_string(Skip reason);
std::string_view to_string(Removal reason);
std::string_view to_string(Outage reason);

template <class Reason>
class Counts {
 public:
  uint64_t& operator[](Reason reason) { return values_[static_cast<size_t>(reason)]; }
  uint64_t operator[](Reason reason) const { return values_[static_cast<size_t>(reason)]; }
  uint64_t total() const {
    uint64_t sum = 0;
    for (const uint64_t value : values_) sum += value;
    return sum;
  }

 private:
  std::array<uint64_t, static_cast<size_t>(Reason::count_)> values_{};
};

/// Since the store was made; they only grow.
struct ColdCounters {
  Counts<Miss> loads;  ///< by how they ended; `none` is a load of the whole chain
  Counts<Skip> skipped;
  Counts<Removal> removed;
  Counts<Outage> outages;  ///< times that one began
  uint64_t loaded_blocks = 0;
  uint64_t loaded_bytes = 0;
  uint64_t load_ns = 0;  ///< of loads that brought blocks, from the ask to the end
  /// The same loads by how long each took: the classes of k_store_load_seconds.
  std::array<uint64_t, k_store_load_seconds.size() + 1> load_times{};
  uint64_t stored_blocks = 0;
  uint64_t stored_bytes = 0;
  uint64_t rewritten_bytes = 0;        ///< second chances, pins and unpins
  uint64_t payload_written_bytes = 0;  ///< by flushes, as RocksDB counts
  uint64_t flushes = 0;
  uint64_t pinned_compactions = 0;  ///< of all pinned records, so that dead ones make room
  uint64_t refused_pins = 0;        ///< blocks that were to be pinned, and are not
  uint64_t admitted_blocks = 0;     ///< `touch` wanted them
  uint64_t touched_blocks = 0;
  uint64_t salvaged = 0;        ///< damaged directories of which something was kept
  uint64_t quarantined = 0;     ///< those moved aside
  uint64_t unclean_starts = 0;  ///< another process before was killed
  uint64_t broken_rows = 0;     ///< index entries that proved nothing
  uint64_t dropped_jobs = 0;    ///< pins and other changes that the queue had no room for
};

/// A look at the store.
struct ColdStats {
  ColdCounters counters;
  Outage outage = Outage::none;
  std::string outage_text;
  std::string store_uuid;
  uint64_t rows = 0;
  uint64_t bytes = 0;         ///< of records that the index has
  uint64_t pinned_bytes = 0;  ///< of these
  uint64_t file_bytes = 0;    ///< payload files, as of the last flush
  uint32_t files = 0;
  uint64_t deleted_files = 0;  ///< by another program: readable until the store closes
  uint64_t queued_bytes = 0;   ///< waiting to be written
  uint32_t loads_waiting = 0;
  ReadSpeed speed;
  std::vector<TenantUse> tenants;
};

}  // namespace outrider::kvstore
