// Makes a database that does not open anew from what can be read of it.

#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <regex>

#include "kvstore/database_state.hpp"
#include "kvstore/directory_check.hpp"
#include "kvstore/log_check.hpp"
#include "kvstore/table_check.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

constexpr int k_asides_max = 16;  // each costs another look at all

/// A salvage makes tables of the logs.
Result<void> check_room(const std::string& directory) {
  uint64_t logs = 0;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const uint64_t bytes = at->path().extension() == ".log" ? at->file_size(gone) : 0;
    if (!gone) logs += std::min(bytes, k_log_bytes_max);
  }
  const uint64_t needed = logs + (uint64_t{1} << 20);
  const auto room = fs::space(directory, error);
  if (error || room.available >= needed) return {};
  return fail(ErrorCode::too_large, directory + ": a salvage needs " + std::to_string(needed) +
                                        " bytes, " + std::to_string(room.available) + " are free");
}

Error as_error(const OpenError& error) {
  const bool full = error.why == OpenFailure::no_space;
  return fail(full ? ErrorCode::too_large : ErrorCode::io, error.text());
}

std::string lost_directory(const std::string& directory) {
  return directory + "/lost";
}

/// Moves it to lost/, where RocksDB's repair too leaves what it cannot use.
Result<void> set_aside(const std::string& directory, const std::string& file) {
  std::error_code error;
  const std::string lost = lost_directory(directory);
  fs::create_directories(lost, error);
  std::string name = file;
  while (fs::exists(fs::symlink_status(lost + '/' + name, error))) name.insert(0, 1, '0');
  fs::rename(directory + '/' + file, lost + '/' + name, error);
  if (error) return fail(ErrorCode::io, directory + '/' + file + ": " + error.message());
  return {};
}

/// What is no file goes; a file gets its right name where nobody has that, else it is set aside.
Result<void> clear_the_way(const std::string& directory) {
  std::error_code error;
  const auto status = fs::symlink_status(lost_directory(directory), error);
  if (fs::exists(status) && !fs::is_directory(status)) fs::remove(lost_directory(directory), error);
  for (const InTheWay& found : in_the_way(directory)) {
    const fs::path path = directory + '/' + found.name;
    if (!fs::is_regular_file(fs::symlink_status(path, error))) {
      fs::remove_all(path, error);
    } else if (const fs::path right = directory + '/' + found.right_name;
               !found.right_name.empty() && !fs::exists(fs::symlink_status(right, error))) {
      fs::rename(path, right, error);
    } else {
      OUTRIDER_TRY(set_aside(directory, found.name));
    }
    if (error) return fail(ErrorCode::corrupt, path.string() + ": " + error.message());
  }
  return {};
}

/// With a bad block: RocksDB's repair keeps one of those whose filter has it. Payload has too many
/// bytes to be read for that; what is wrong with it is found when it is loaded.
std::vector<std::string> tables_with_bad_blocks(const std::string& directory) {
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().extension() != ".sst") continue;
    rocksdb::SstFileReader table{rocksdb::Options()};
    if (!table.Open(at->path().string()).ok()) continue;  // the repair sees that
    const auto properties = table.GetTableProperties();
    if (!properties || properties->column_family_name == "kvf") continue;
    if (has_bad_block(at->path().string())) out.push_back(at->path().filename().string());
  }
  return out;
}

Result<void> leave_out_damaged(const std::string& directory) {
  for (const TableDamage& damage : damaged_tables(directory)) {
    OUTRIDER_TRY(set_aside(directory, damage.table));
  }
  for (const std::string& table : tables_with_bad_blocks(directory)) {
    OUTRIDER_TRY(set_aside(directory, table));
  }
  for (const LogDamage& damage : damaged_logs(directory)) {
    if (!damage.cut_at) continue;
    std::error_code error;
    fs::resize_file(directory + '/' + damage.log, *damage.cut_at, error);
    if (error) return fail(ErrorCode::io, damage.log + ": " + error.message());
  }
  return {};
}

/// Of two tables with overlapping writes, which RocksDB's repair refuses: the one to do without.
/// The wider one is what a compaction made of others, whose records they still have; else one is
/// the other's copy.
std::optional<uint64_t> refused_table(const std::string& text) {
  static const std::regex pair(
      "L0 file #(\\d+) with (?:global_)?seqno (\\d+)(?: (\\d+))? "
      "vs\\. file #(\\d+) with (?:global_)?seqno (\\d+)(?: (\\d+))?");
  std::smatch found;
  if (!std::regex_search(text, found, pair)) return std::nullopt;
  std::array<uint64_t, 6> at{};  // of each its number, the first of its writes and the last
  for (size_t i = 0; i < at.size(); ++i) {
    const auto& part = found[i + 1].matched ? found[i + 1] : found[i];
    at[i] = std::strtoull(part.str().c_str(), nullptr, 10);
  }
  const auto width = [&](size_t table) {
    return std::max(at[table + 1], at[table + 2]) - std::min(at[table + 1], at[table + 2]);
  };
  if (width(0) != width(3)) return width(0) > width(3) ? at[0] : at[3];
  return std::max(at[0], at[3]);
}

bool may_share_a_write(const rocksdb::LiveFileMetaData& a, const rocksdb::LiveFileMetaData& b) {
  return a.smallestkey <= b.largestkey && b.smallestkey <= a.largestkey &&
         a.smallest_seqno <= b.largest_seqno && b.smallest_seqno <= a.largest_seqno;
}

/// Tables to do without, so that no two of a family may have the same write of a key: RocksDB's
/// repair lets through tables whose writes overlap in part, or are one, and where it was built with
/// assertions, as Debian does, who goes through them then ends the process. The wider ones, as
/// above. Payload is never gone through.
std::vector<std::string> overlapping_tables(rocksdb::DB& db) {
  std::vector<rocksdb::LiveFileMetaData> tables;
  db.GetLiveFilesMetaData(&tables);
  std::erase_if(tables, [](const auto& table) { return table.column_family_name == "kvf"; });
  std::sort(tables.begin(), tables.end(), [](const auto& a, const auto& b) {
    const uint64_t width_a = a.largest_seqno - a.smallest_seqno;
    const uint64_t width_b = b.largest_seqno - b.smallest_seqno;
    return std::tie(width_a, a.file_number) < std::tie(width_b, b.file_number);
  });
  std::vector<const rocksdb::LiveFileMetaData*> kept;
  std::vector<std::string> out;
  for (const auto& table : tables) {
    const bool overlaps = std::any_of(kept.begin(), kept.end(), [&](const auto* other) {
      return table.column_family_name == other->column_family_name &&
             may_share_a_write(table, *other);
    });
    if (overlaps) {
      out.push_back(table.relative_filename);
    } else {
      kept.push_back(&table);
    }
  }
  return out;
}

/// RocksDB's repair; false where a table was set aside that it stumbled over.
Result<bool> repair_once(const std::string& directory, const DatabaseOptions& options) {
  rocksdb::Status status;
  try {
    status = rocksdb::RepairDB(directory, database_options(options), families_of(options));
  } catch (const std::exception& error) {
    return fail(ErrorCode::io, error.what());
  }
  if (status.ok()) return true;
  if (is_locked(status)) return fail(ErrorCode::unavailable, in_use_text(directory));
  const auto table = refused_table(status.ToString());
  if (!table || !set_aside(directory, table_name(*table))) return error_of(status);
  return false;
}

}  // namespace

bool Database::salvage_was_cut_off(const std::string& directory) {
  return SalvageMark::is_there(directory);
}

uint32_t Database::salvage_tries(const std::string& directory) {
  return SalvageMark::tries(directory);
}

Result<std::unique_ptr<Database>> Database::make_anew(const std::string& directory,
                                                      const DatabaseOptions& options) {
  OUTRIDER_TRY(leave_out_damaged(directory));
  for (int aside = 0; aside <= k_asides_max; ++aside) {
    bool repaired = false;
    OUTRIDER_ASSIGN(repaired, repair_once(directory, options));
    if (!repaired) continue;
    auto opened = open_anyway(directory, options);
    if (!opened.database) return as_error(opened.error);
    const auto overlapping = overlapping_tables(*opened.database->state_->db);
    if (overlapping.empty()) {
      OUTRIDER_TRY(opened.database->write_lost(lost_directory(directory)));
      return std::move(opened.database);
    }
    opened.database.reset();
    for (const std::string& table : overlapping) OUTRIDER_TRY(set_aside(directory, table));
  }
  return fail(ErrorCode::corrupt, directory + ": too many tables have the same writes");
}

Result<std::unique_ptr<Database>> Database::salvage(const std::string& directory,
                                                    const DatabaseOptions& options) {
  OUTRIDER_TRY(check_free(directory));
  OUTRIDER_TRY(check_room(directory));
  OUTRIDER_TRY(clear_the_way(directory));
  auto mark = SalvageMark::make(directory);
  if (!mark) return mark.error();
  DatabaseOptions meanwhile = options;
  meanwhile.compacts = false;  // a table that cannot be read would stop all writes
  auto made = make_anew(directory, meanwhile);
  if (!made) {
    const ErrorCode code = made.error().code;
    if (code == ErrorCode::unavailable || code == ErrorCode::too_large) mark->forgive();
    return made;
  }
  State& state = *(*made)->state_;
  state.options = options;
  state.directory = directory;
  state.salvage.emplace(std::move(*mark));
  return made;
}

Result<void> Database::settle() {
  state_->opening.reset();
  if (!state_->salvage) return {};
  std::error_code ignored;
  fs::remove_all(lost_directory(state_->directory), ignored);
  OpeningMark::remove(state_->directory);
  OUTRIDER_TRY(state_->salvage->remove());
  state_->salvage.reset();
  if (!state_->options.compacts) return {};
  const auto status = state_->db->EnableAutoCompaction(
      {state_->marks, state_->rows, state_->payload, state_->pinned});
  return status.ok() ? Result<void>() : error_of(status);
}

}  // namespace outrider::kvstore
