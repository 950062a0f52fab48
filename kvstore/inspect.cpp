#include "kvstore/inspect.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/system.hpp"
#include "kvstore/cold_open.hpp"
#include "kvstore/database.hpp"
#include "kvstore/salvage_mark.hpp"

namespace outrider::kvstore {
namespace {

/// Who keeps what can be read of a damaged database at `path`.
std::string advice(const std::string& directory, const std::string& path) {
  const std::string repair = "\n  outrider inspect kv ";
  if (path != database_directory(directory)) {
    return "To keep what can be read, move it to NEW/db, and then" + repair + "NEW --repair";
  }
  if (is_salvaged_at_start(path)) {
    return "What can be read is kept by a server that starts on it, and by" + repair + directory +
           " --repair";
  }
  return "A server that starts on it moves it aside and begins empty; what can be read is kept, "
         "before that, by" +
         repair + directory + " --repair";
}

Error error_of(const std::string& directory, const std::string& path, const OpenError& error) {
  if (error.why == OpenFailure::in_use) return fail(ErrorCode::unavailable, error.text());
  if (error.why != OpenFailure::damaged) return fail(ErrorCode::io, error.text());
  return fail(ErrorCode::corrupt, directory + " is damaged: " + error.message + ". " +
                                      advice(directory, path) +
                                      (error.detail.empty() ? "" : "\nDetail: " + error.detail));
}

class Inspection {
 public:
  Inspection(std::string directory, InspectOptions options) : options_(options) {
    report_.directory = std::move(directory);
  }

  Result<InspectReport> run() {
    std::string path = database_directory(report_.directory);
    bool there = false;
    OUTRIDER_ASSIGN(there, holds_database(path));
    if (!there) {
      path = report_.directory;
      OUTRIDER_ASSIGN(there, holds_database(path));
      if (!there) return fail(ErrorCode::not_found, path + " holds no KV store");
      if (options_.repair || options_.unpin) return not_in_its_place(path);
    }
    if (options_.repair || options_.unpin) {
      auto lock = DirectoryLock::take(report_.directory);
      if (!lock) return lock.error();
      lock_.emplace(std::move(*lock));
      report_.held = true;
    }
    if (const auto opened = open(path); opened.why) OUTRIDER_TRY(rescue(path, *opened.why));
    if (options_.verify || options_.repair) OUTRIDER_TRY(verify_tables(path));
    if (options_.verify || options_.repair) OUTRIDER_TRY(verify());
    if (options_.repair) OUTRIDER_TRY(repair());
    if (options_.unpin) OUTRIDER_TRY(unpin());
    // Its last server's stop is what the next one is told of, not what was changed here since.
    const bool changes = options_.repair || options_.unpin;
    if (changes && report_.clean_shutdown) OUTRIDER_TRY(database_->mark_closed());
    database_.reset();
    if (options_.repair || options_.unpin) OUTRIDER_TRY(look_again());
    report_.disk_bytes = disk_bytes(report_.directory);
    report_.quarantine_bytes = disk_bytes(quarantine_directory(report_.directory));
    return report_;
  }

 private:
  InspectOptions options_;
  InspectReport report_;
  std::optional<DirectoryLock> lock_;  // when it is to change: nobody else opens it meanwhile
  std::unique_ptr<Database> database_;
  Database::Rows rows_;
  std::vector<std::string> broken_;
  RowBatch drops_;
  std::map<uint64_t, Digest256> namespaces_;  // of good records

  /// Without CURRENT, but with tables, it is one that is damaged.
  static Result<bool> holds_database(const std::string& path) {
    std::error_code ignored;
    const auto current = std::filesystem::symlink_status(path + "/CURRENT", ignored);
    const bool there = std::filesystem::exists(current);
    if (ignored && current.type() != std::filesystem::file_type::not_found)
      return fail(ErrorCode::not_found, path + ": " + ignored.message());
    if (there) return true;
    std::filesystem::directory_iterator at(path, ignored);
    for (; !ignored && at != std::filesystem::directory_iterator(); at.increment(ignored)) {
      if (at->path().extension() == ".sst") return true;
    }
    return false;
  }

  /// A directory that was moved aside, or the inner one of a store.
  static Error not_in_its_place(const std::string& path) {
    return fail(ErrorCode::invalid_argument,
                path +
                    " is a database without its directory, and can be looked at only; to change "
                    "it, move it to NEW/db and name NEW");
  }

  DatabaseOptions how_to_open() const {
    DatabaseOptions how;
    how.read_only = !options_.repair && !options_.unpin;
    how.direct_io = false;
    how.compacts = false;
    // No size is known here: nothing may be dropped for being too much.
    how.payload_cap_bytes = uint64_t{1} << 60;
    how.payload_buffer_bytes = how.pinned_buffer_bytes = uint64_t{4} << 20;
    return how;
  }

  struct Tried {
    std::optional<OpenError> why;  ///< none: it is open, and its rows are read
  };
  Tried open(const std::string& path) {
    auto opened = Database::open(path, how_to_open());
    return opened.database ? read_all(std::move(opened.database)) : Tried{opened.error};
  }
  Tried read_all(std::unique_ptr<Database> database) {
    database_ = std::move(database);
    auto read = read_rows();
    if (read) read = database_->settle();
    if (!read) {
      database_.reset();
      return {OpenError{OpenFailure::damaged, "its index cannot be read", read.error().message}};
    }
    return {};
  }

  /// Keeps what can be read of a database that does not open; else moves it aside.
  Result<void> rescue(const std::string& path, const OpenError& why) {
    if (!options_.repair || why.why != OpenFailure::damaged) {
      return error_of(report_.directory, path, why);
    }
    forget_rows();
    auto salvaged = Database::salvage(path, how_to_open());
    if (salvaged && !read_all(std::move(*salvaged)).why) {
      report_.salvaged = true;
      return {};
    }
    const auto code = salvaged ? ErrorCode::corrupt : salvaged.error().code;
    if (code == ErrorCode::unavailable || code == ErrorCode::too_large) return salvaged.error();
    forget_rows();
    OUTRIDER_TRY(quarantine(report_.directory, UINT64_MAX));
    report_.moved_aside = true;
    std::error_code ignored;
    std::filesystem::create_directories(path, ignored);
    if (const auto empty = open(path); empty.why)
      return error_of(report_.directory, path, *empty.why);
    return {};
  }

  void forget_rows() {
    rows_.clear();
    broken_.clear();
    drops_ = {};
    report_ = InspectReport{.directory = report_.directory};
  }

  /// What is there now, beside what was done.
  Result<void> look_again() {
    const InspectReport done = report_;
    OUTRIDER_ASSIGN(report_,
                    inspect(done.directory, {.verify = options_.verify || options_.repair}));
    report_.held = done.held;
    report_.dropped = done.dropped;
    report_.dropped_aged = done.dropped_aged;
    report_.salvaged = done.salvaged;
    report_.lost = done.lost;
    report_.moved_aside = done.moved_aside;
    report_.marks_renewed = done.marks_renewed;
    report_.unpinned = done.unpinned;
    return {};
  }

  Result<void> read_rows() {
    report_.format = database_->mark(k_format_mark).value_or("");
    report_.store_uuid = database_->mark(k_uuid_mark).value_or("");
    report_.clean_shutdown = database_->was_closed();
    PayloadFiles files;
    OUTRIDER_ASSIGN(files, database_->payload_files());
    report_.payload_files = files.files;
    OUTRIDER_TRY(database_->each_row(
        [&](const BlockId& id, const Row& row) {
          const bool aged = row.place == Place::fifo &&
                            (files.files == 0 || row.sequence < files.oldest_sequence);
          if (aged) {
            ++report_.aged_rows;
            drops_.delete_row(id);
          } else {
            rows_.emplace_back(id, row);
          }
        },
        [&](std::string_view key) { broken_.emplace_back(key); }));
    report_.broken_rows = broken_.size();
    return summarise();
  }

  Result<void> summarise() {
    std::map<uint64_t, NamespaceUse> namespaces;
    std::map<uint64_t, NamedTenantUse> tenants;
    for (const auto& [id, row] : rows_) {
      ++report_.records;
      report_.record_bytes += row.bytes;
      if (row.place == Place::pinned) {
        ++report_.pinned_records;
        report_.pinned_bytes += row.bytes;
      }
      const bool first = report_.records == 1;
      report_.oldest_use = first ? row.used_at : std::min(report_.oldest_use, row.used_at);
      report_.newest_use = std::max(report_.newest_use, row.used_at);
      NamespaceUse& ns = namespaces[row.ns];
      ++ns.records;
      ns.bytes += row.bytes;
      ns.tokens += row.tokens;
      NamedTenantUse& tenant = tenants[row.tenant];
      ++tenant.records;
      tenant.bytes += row.bytes;
    }
    for (auto& [number, use] : namespaces) {
      use.ns = name_of_namespace(number);
      const std::string mark = database_->mark(namespace_mark(number)).value_or("");
      if (const size_t end = mark.find(' '); end != mark.npos) use.about = mark.substr(end + 1);
      report_.namespaces.push_back(std::move(use));
    }
    for (auto& [number, use] : tenants) {
      use.tenant = name_of_tenant(number);
      report_.tenants.push_back(std::move(use));
    }
    return {};
  }

  std::string name_of_namespace(uint64_t number) const {
    const std::string mark = database_->mark(namespace_mark(number)).value_or(hex_of(number));
    return mark.substr(0, mark.find(' '));
  }
  std::string name_of_tenant(uint64_t number) const {
    return database_->mark(tenant_mark(number)).value_or(hex_of(number));
  }

  /// A bad block under no living record is met by a compaction, if by nobody else.
  Result<void> verify_tables(const std::string& path) {
    report_.bad_tables = database_->bad_tables();
    if (report_.bad_tables.empty() || !options_.repair) return {};
    const std::string first = report_.bad_tables.front();
    database_.reset();
    return rescue(path, {OpenFailure::damaged, "a table, " + first + ", is damaged", {}});
  }

  Result<void> verify() {
    report_.verified = true;
    std::set<BlockId> pinned;
    std::erase_if(rows_, [&](const auto& entry) {
      const auto& [id, row] = entry;
      if (row.place == Place::pinned) pinned.insert(id);
      const std::string reason = verify_one(id, row);
      if (reason.empty()) return false;
      report_bad({.id = to_hex(id),
                  .ns = name_of_namespace(row.ns),
                  .tenant = name_of_tenant(row.tenant),
                  .depth = row.depth,
                  .reason = reason});
      drops_.delete_row(id);
      if (row.place == Place::pinned) drops_.delete_pinned(id);
      return true;
    });
    const auto stored = database_->pinned_ids();
    if (!stored) return {};  // damaged: its records were counted one by one above
    for (const BlockId& id : *stored) {
      if (pinned.contains(id)) continue;
      ++report_.orphans;
      report_orphan(id);
      drops_.delete_pinned(id);
    }
    return {};
  }

  /// Counts a row's record; why it is wrong, or "".
  std::string verify_one(const BlockId& id, const Row& row) {
    const auto bytes = database_->read(id, row.place);
    if (!bytes && bytes.error().code == ErrorCode::not_found) {
      ++report_.missing_records;
      return "missing: there is no record";
    }
    const auto record = bytes ? decode(bytes->bytes()) : bytes.error();
    if (record && record->id == id && short_of(record->ns) == row.ns) {
      ++report_.good_records;
      namespaces_.emplace(row.ns, record->ns);
      return {};
    }
    ++report_.corrupt_records;
    if (!record) return "corrupt: " + record.error().message;
    if (record->id != id) return "corrupt: it is the record of " + to_hex(record->id);
    return "corrupt: it is of namespace " + to_hex(record->ns);
  }

  void report_orphan(const BlockId& id) {
    BadRecord bad{.id = to_hex(id),
                  .ns = {},
                  .tenant = {},
                  .depth = {},
                  .reason = "orphan: a pinned record that no row names"};
    const auto bytes = database_->read(id, Place::pinned);
    if (const auto record = bytes ? decode(bytes->bytes()) : bytes.error(); record) {
      bad.ns = name_of_namespace(short_of(record->ns));
      bad.depth = record->depth;
    }
    report_bad(std::move(bad));
  }

  void report_bad(BadRecord bad) {
    if (report_.bad_records.size() == k_bad_records_shown) return;
    report_.bad_records.push_back(std::move(bad));
  }

  Result<void> repair() {
    if (report_.salvaged) report_.lost = database_->lost_records(rows_.size());
    OUTRIDER_TRY(database_->write(drops_, rows_.size()));
    for (const std::string& key : broken_) OUTRIDER_TRY(database_->delete_broken_row(key));
    report_.dropped =
        report_.missing_records + report_.corrupt_records + report_.orphans + report_.broken_rows;
    report_.dropped_aged = report_.aged_rows;
    return renew_marks();
  }

  /// Names of tenants but the public one are lost with their marks, until a server stores for them.
  Result<void> renew_marks() {
    if (report_.format.empty() && !rows_.empty()) {
      std::array<uint8_t, 16> uuid{};
      for (uint8_t& byte : uuid) byte = static_cast<uint8_t>(random_bits() >> 32);
      OUTRIDER_TRY(database_->set_mark(k_uuid_mark, to_hex(uuid)));
      OUTRIDER_TRY(database_->set_mark(k_format_mark, k_format));
      OUTRIDER_TRY(database_->set_mark(tenant_mark(tenant_number("")), ""));
      report_.marks_renewed = true;
    }
    for (const auto& [number, ns] : namespaces_) {
      if (database_->mark(namespace_mark(number))) continue;
      OUTRIDER_TRY(database_->set_mark(namespace_mark(number), to_hex(ns) + ' '));
    }
    return {};
  }

  /// As a running store does it: a record is in both places until its row says otherwise.
  Result<void> unpin() {
    RowBatch rows;
    for (auto [id, row] : rows_) {
      if (row.place != Place::pinned) continue;
      const auto record = database_->read(id, Place::pinned);
      if (!record) continue;  // stays, for a repair to drop
      OUTRIDER_ASSIGN(row.sequence, database_->put_payload(id, record->bytes()));
      row.place = Place::fifo;
      rows.put_row(id, row);
      rows.delete_pinned(id);
      ++report_.unpinned;
    }
    OUTRIDER_TRY(database_->flush_payload());
    OUTRIDER_TRY(database_->write(rows));
    // Else both copies stay until a server needs the room. That it fails costs no more.
    std::ignore = database_->compact_pinned();
    return {};
  }
};

}  // namespace

/// A server that runs deletes files that a look has just learnt of: what seems wrong is looked at
/// again.
Result<InspectReport> inspect(const std::string& directory, InspectOptions options) {
  constexpr int k_looks_max = 6;
  const bool only_looks = !options.repair && !options.unpin;
  for (int look = 1;; ++look) {
    auto report = Inspection(directory, options).run();
    const bool seems_damaged =
        report ? !report->all_good() : report.error().code == ErrorCode::corrupt;
    const bool again = only_looks && seems_damaged && look < k_looks_max;
    if (!again || Database::check_free(database_directory(directory))) return report;
  }
}

}  // namespace outrider::kvstore
