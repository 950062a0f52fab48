#include <rocksdb/sst_file_reader.h>

#include <cstdlib>
#include <regex>

#include "kvstore/database_state.hpp"

namespace outrider::kvstore {
namespace {

/// The number of the table that a text is about. RocksDB looks for tables under two names.
std::optional<uint64_t> table_in(const std::string& text) {
  static const std::regex table("(\\d+)\\.(?:sst|ldb)|table file (\\d+)");
  std::smatch found;
  if (!std::regex_search(text, found, table)) return std::nullopt;
  return std::strtoull(found[found[1].matched ? 1 : 2].str().c_str(), nullptr, 10);
}

/// The number that a table was written under; 0 where that cannot be read.
uint64_t number_when_written(const std::string& table) {
  rocksdb::SstFileReader reader{rocksdb::Options()};
  if (!reader.Open(table).ok()) return 0;
  const auto properties = reader.GetTableProperties();
  return properties ? properties->orig_file_number : 0;
}

/// In our words what is wrong with which file.
std::string damage_text(const std::string& directory, const std::string& from_rocksdb) {
  const auto name_at = [&](size_t at) {
    const size_t end = from_rocksdb.find_first_of(" :,", at);
    return from_rocksdb.substr(at, end == std::string::npos ? end : end - at);
  };
  std::string what = "its content";
  if (const auto table = table_in(from_rocksdb)) {
    const std::string name = table_name(*table);
    what = "a table, " + name + ",";
    const uint64_t before = number_when_written(directory + '/' + name);
    if (before != 0 && before != *table) return what + " is what was " + table_name(before);
  } else if (const size_t list = from_rocksdb.find("MANIFEST-"); list != std::string::npos) {
    what = "the list of its tables, " + name_at(list) + ",";
  } else if (from_rocksdb.find("CURRENT") != std::string::npos) {
    what = "CURRENT, which names the list of its tables,";
  }
  const bool lost = from_rocksdb.find("No such file") != std::string::npos;
  return what + (lost ? " is lost" : " is damaged");
}

}  // namespace

std::string table_name(uint64_t number) {
  std::string name = std::to_string(number);
  return name.insert(0, name.size() < 6 ? 6 - name.size() : 0, '0') + ".sst";
}

std::string in_use_text(const std::string& directory) {
  return directory + " is in use by another process (a server?)";
}

bool is_locked(const rocksdb::Status& status) {
  return status.IsIOError() && status.ToString().find("/LOCK") != std::string::npos;
}

OpenError open_error(const std::string& directory, const rocksdb::Status& status) {
  OpenFailure why = OpenFailure::other;
  if (status.IsNoSpace()) {
    why = OpenFailure::no_space;
  } else if (status.IsCorruption() || status.IsPathNotFound() || status.IsNotSupported() ||
             status.IsInvalidArgument() || status.IsNotFound()) {
    why = OpenFailure::damaged;
  }
  if (is_locked(status)) return {OpenFailure::in_use, in_use_text(directory), {}};
  if (why == OpenFailure::damaged) {
    return {why, damage_text(directory, status.ToString()), text_of(status)};
  }
  return {why, text_of(status), {}};
}

}  // namespace outrider::kvstore
