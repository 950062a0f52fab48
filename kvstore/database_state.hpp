#pragma once

#include <rocksdb/db.h>

#include <memory>
#include <string>
#include <vector>

#include "kvstore/database.hpp"

/// Private to database*.cpp: nothing else sees RocksDB's headers.
namespace outrider::kvstore {

struct Database::State {
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::ColumnFamilyHandle* marks = nullptr;    ///< `default`
  rocksdb::ColumnFamilyHandle* rows = nullptr;     ///< `idx`
  rocksdb::ColumnFamilyHandle* payload = nullptr;  ///< `kvf`
  rocksdb::ColumnFamilyHandle* pinned = nullptr;   ///< `kvp`
  DatabaseOptions options;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
};

inline rocksdb::Slice slice_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline rocksdb::Slice slice_of(const BlockId& id) {
  return {reinterpret_cast<const char*>(id.data()), id.size()};
}
inline rocksdb::Slice slice_of(std::string_view text) {
  return {text.data(), text.size()};
}

Error error_of(const rocksdb::Status& status);

}  // namespace outrider::kvstore
