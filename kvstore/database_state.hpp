#pragma once

#include <rocksdb/db.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstore/database.hpp"
#include "kvstore/salvage_mark.hpp"

/// Private to database*.cpp: nothing else sees RocksDB's headers.
namespace outrider::kvstore {

/// A file that another program put in the place of one, or wrote over it, has another.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t written_ns = 0;
  bool operator==(const FileIdentity&) const = default;
};

struct Database::State {
  std::optional<DirectoryLock> lock;     ///< outlives the database, as
  std::unique_ptr<OpeningMark> opening;  ///< until it is settled
  std::optional<SalvageMark> salvage;    ///< likewise
  std::string directory;                 ///< of a salvage
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::ColumnFamilyHandle* marks = nullptr;    ///< `default`
  rocksdb::ColumnFamilyHandle* rows = nullptr;     ///< `idx`
  rocksdb::ColumnFamilyHandle* payload = nullptr;  ///< `kvf`
  rocksdb::ColumnFamilyHandle* pinned = nullptr;   ///< `kvp`
  DatabaseOptions options;
  std::optional<FileIdentity> current;  ///< Of CURRENT, which lasts as long as a list of 1 GiB.
  uint64_t found_sequence = 0;  ///< Of the last write before this opening; of a salvage, before it.

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
};

/// Of CURRENT; none where the system does not say.
std::optional<FileIdentity> current_of(const rocksdb::DB& db);

inline rocksdb::Slice slice_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline rocksdb::Slice slice_of(const BlockId& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}
inline rocksdb::Slice slice_of(std::string_view text) {
  return {text.data(), text.size()};
}
inline std::span<const std::byte> bytes_of(const rocksdb::Slice& slice) {
  return std::as_bytes(std::span(slice.data(), slice.size()));
}
/// None: the key is no id.
inline std::optional<BlockId> id_of(const rocksdb::Slice& key) {
  BlockId id;
  if (key.size() != id.size()) return std::nullopt;
  std::memcpy(id.data(), key.data(), id.size());
  return id;
}

rocksdb::DBOptions database_options(const DatabaseOptions& options);
std::vector<rocksdb::ColumnFamilyDescriptor> families_of(const DatabaseOptions& options);

/// Whether a table has a block, of any kind, that is not what its check sum says. Reads it.
bool has_bad_block(const std::string& table);

/// What RocksDB says, with directories by their names.
std::string text_of(const rocksdb::Status& status);
Error error_of(const rocksdb::Status& status);

/// Why an open failed, in our words: what is wrong with which file.
OpenError open_error(const std::string& directory, const rocksdb::Status& status);
bool is_locked(const rocksdb::Status& status);
std::string in_use_text(const std::string& directory);
std::string table_name(uint64_t number);

}  // namespace outrider::kvstore
