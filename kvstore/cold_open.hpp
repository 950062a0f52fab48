#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/cold_store.hpp"
#include "kvstore/database.hpp"

namespace outrider::kvstore {

inline constexpr const char* k_format_mark = "format";
inline constexpr const char* k_format = "outrider-kv-1";
inline constexpr const char* k_uuid_mark = "uuid";
inline constexpr const char* k_clean_mark = "clean";
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
  bool made = false;     ///< there was none
  bool unclean = false;  ///< the process before did not close it
  uint32_t quarantined = 0;
  std::string quarantined_why;
  std::vector<std::pair<BlockId, Row>> rows;  ///< whose record should be there; least used first
  std::vector<std::pair<BlockId, Row>> gone;  ///< whose record has left the FIFO
  uint64_t broken_rows = 0;
  PayloadFiles files;
};

/// Opens DIR/db, creating it. A damaged one is moved to DIR/quarantine (one is kept, without its
/// large files) and the store starts empty; `known_damage`, where there is some, says so without a
/// try. Blocks.
OpenedStore open_store(const ColdStoreOptions& options,
                       const std::function<uint64_t()>& random_bits,
                       const std::string& known_damage);

/// Moves DIR/db to DIR/quarantine, replacing what was there.
Result<void> quarantine(const std::string& directory, uint64_t kept_bytes_max);

}  // namespace outrider::kvstore
