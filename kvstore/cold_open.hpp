#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/cold_store.hpp"
#include "kvstore/database.hpp"

namespace outrider::kvstore {

inline constexpr const char* k_format_mark = "format";
inline constexpr const char* k_format = "outrider-kv-1";
inline constexpr const char* k_uuid_mark = "uuid";
/// Marks with the name of a tenant, and with all of a namespace in hex.
std::string tenant_mark(uint64_t tenant);
std::string namespace_mark(uint64_t short_ns);
std::string hex_of(uint64_t value);

/// Where the parts of a store lie in its directory.
std::string database_directory(const std::string& directory);
std::string quarantine_directory(const std::string& directory);

/// All regular files below a directory.
uint64_t disk_bytes(const std::string& directory);

/// An opened store directory, or why there is none.
struct OpenedStore {
  std::unique_ptr<Database> database;
  Outage outage = Outage::none;  ///< when there is no database
  std::string outage_text;
  std::string store_uuid;
  bool made = false;      ///< there was none
  bool unclean = false;   ///< the process before did not close it
  std::string damage;     ///< that it had, where it was salvaged or quarantined
  bool salvaged = false;  ///< made anew from what could be read of it
  /// How many were lost with that, by the count of the last write; none: that is lost, too.
  std::optional<uint64_t> lost_records;
  bool quarantined = false;
  bool foreign = false;  ///< no damage: another program's format
  Database::Rows rows;   ///< whose record should be there; least used first
  Database::Rows gone;   ///< whose record has left the FIFO
  uint64_t broken_rows = 0;
  PayloadFiles files;
};

/// What enters an opening from outside.
struct Opening {
  const std::function<uint64_t()>& random_bits;
  std::string known_damage;  ///< where a write found some: so without a try
  bool may_salvage = true;
  std::optional<uint64_t> file_system =
      std::nullopt;  ///< where it was open before, in this process
  /// Before a salvage, which reads all that is there: so many bytes, and what the damage is.
  std::function<void(uint64_t bytes, const std::string& damage)> salvaging;
};

/// Opens DIR/db, creating it, while nobody else opens it (else: an outage). Of a damaged one what
/// can be read is kept: once, if that ends. What cannot be salvaged (nothing of it is left, it is
/// of another format, it is larger than 32 GiB, three processes died at it before) is moved to
/// DIR/quarantine (one is kept, without its large files), and the store starts empty. Blocks.
OpenedStore open_store(const ColdStoreOptions& options, const Opening& how);

/// Whether `open_store` would salvage this database if it were damaged, or move it aside.
bool is_salvaged_at_start(const std::string& path);

/// Moves DIR/db to DIR/quarantine, replacing what was there. Errors: unavailable (in use), io.
Result<void> quarantine(const std::string& directory, uint64_t kept_bytes_max);

}  // namespace outrider::kvstore
