#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kvstore/index_row.hpp"

/// A look at a store directory without a server. Looking only reads (a running server does not
/// mind); repairing needs the directory for itself.
namespace outrider::kvstore {

struct InspectOptions {
  bool verify = false;  ///< read every record and every table of the index, and check all of it
  bool repair = false;  ///< drop what is wrong; implies verify
  bool unpin = false;   ///< pinned records become ordinary ones
};

struct NamespaceUse {
  std::string ns;     ///< hex, all of it where the store knows it
  std::string about;  ///< model and kinds, as the server described it
  uint64_t records = 0;
  uint64_t bytes = 0;
  uint64_t tokens = 0;
};

struct NamedTenantUse {
  std::string tenant;  ///< its name where the store knows it, else its number
  uint64_t records = 0;
  uint64_t bytes = 0;
};

/// Records that a verification names; the others it counts.
inline constexpr size_t k_bad_records_shown = 50;

/// A record that does not verify: what its row, or without one itself, says of it.
struct BadRecord {
  std::string id;                     ///< hex
  std::string ns;                     ///< as in NamespaceUse; "": unknown
  std::optional<std::string> tenant;  ///< as in NamedTenantUse; none: no row names it
  std::optional<uint32_t> depth;      ///< blocks before it in its chain
  std::string reason;
};

struct InspectReport {
  std::string directory;
  std::string format;
  std::string store_uuid;
  bool clean_shutdown = false;  ///< false too while a server runs
  uint64_t disk_bytes = 0;
  uint64_t quarantine_bytes = 0;  ///< of these
  uint64_t payload_files = 0;
  uint64_t records = 0;
  uint64_t record_bytes = 0;
  uint64_t pinned_records = 0;
  uint64_t pinned_bytes = 0;
  int64_t oldest_use = 0;  ///< seconds since 1970; 0 without records
  int64_t newest_use = 0;
  std::vector<NamespaceUse> namespaces;
  std::vector<NamedTenantUse> tenants;
  uint64_t broken_rows = 0;  ///< index entries that prove nothing
  uint64_t aged_rows = 0;    ///< whose record has left the FIFO, not swept yet
  bool verified = false;
  uint64_t good_records = 0;
  uint64_t missing_records = 0;
  uint64_t corrupt_records = 0;
  uint64_t orphans = 0;  ///< pinned records that no row names
  /// Tables, but for the payload's, with a block that does not verify, be it under no record.
  std::vector<std::string> bad_tables;
  std::vector<BadRecord> bad_records;  ///< of the three above the first k_bad_records_shown
  /// What a repair, or unpinning, did; all other figures are then from after it.
  bool held = false;             ///< it was this process's alone: no server runs
  uint64_t dropped = 0;          ///< rows and orphans that were wrong
  uint64_t dropped_aged = 0;     ///< rows whose record had left the FIFO, as it does
  bool salvaged = false;         ///< the database was damaged, and was made anew from its tables
  std::optional<uint64_t> lost;  ///< records, by that, of those there were; none: not known
  bool moved_aside = false;      ///< nor did that: it is in quarantine/, and the store is empty
  bool marks_renewed = false;    ///< format and id were lost, and perhaps names of tenants
  uint64_t unpinned = 0;

  bool all_good() const {
    return bad_tables.empty() && broken_rows + corrupt_records + missing_records + orphans == 0;
  }
};

/// `directory` may also be a store's quarantine/, to look at. Errors: not_found (no store there),
/// corrupt (does not open; a repair keeps what can be read), io or unavailable (in use by a server,
/// when it is to change), too_large (no room for a repair).
Result<InspectReport> inspect(const std::string& directory, InspectOptions options);

}  // namespace outrider::kvstore
