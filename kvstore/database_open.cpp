#include <fcntl.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/rate_limiter.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <regex>

#include "kvstore/database_state.hpp"
#include "kvstore/log_check.hpp"
#include "kvstore/salvage_mark.hpp"
#include "kvstore/table_check.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

constexpr size_t k_small_buffer_bytes = size_t{4} << 20;  // marks and rows
constexpr uint64_t k_wal_bytes_max = uint64_t{16} << 20;
constexpr int k_tables_aside_max = 16;  // each costs another look at all
/// Kills do that rarely, what ends the process each time does nothing else.
constexpr uint32_t k_opening_deaths_max = 5;

/// No block cache: rows are read once at start, a record is read once a request.
std::shared_ptr<rocksdb::TableFactory> table_factory() {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  table.checksum = rocksdb::kXXH3;
  table.format_version = 5;
  return std::shared_ptr<rocksdb::TableFactory>(rocksdb::NewBlockBasedTableFactory(table));
}

rocksdb::ColumnFamilyOptions small_family() {
  rocksdb::ColumnFamilyOptions family;
  family.table_factory = table_factory();
  family.compression = rocksdb::kNoCompression;  // ids are noise
  family.write_buffer_size = k_small_buffer_bytes;
  family.max_write_buffer_number = 2;
  return family;
}

rocksdb::ColumnFamilyOptions payload_family(const DatabaseOptions& options) {
  rocksdb::ColumnFamilyOptions family = small_family();
  family.num_levels = 1;
  family.compaction_style = rocksdb::kCompactionStyleFIFO;
  family.compaction_options_fifo.max_table_files_size = options.payload_cap_bytes;
  family.compaction_options_fifo.allow_compaction = false;
  family.write_buffer_size = 2 * options.payload_buffer_bytes;  // the store flushes before
  family.max_write_buffer_number = 3;
  return family;
}

rocksdb::ColumnFamilyOptions pinned_family(const DatabaseOptions& options) {
  rocksdb::ColumnFamilyOptions family = small_family();
  family.write_buffer_size = options.pinned_buffer_bytes;
  family.target_file_size_base = 2 * options.pinned_buffer_bytes;
  return family;
}

std::vector<rocksdb::ColumnFamilyDescriptor> families_of(const DatabaseOptions& options) {
  std::vector<rocksdb::ColumnFamilyDescriptor> out = {
      {rocksdb::kDefaultColumnFamilyName, small_family()},
      {"idx", small_family()},
      {"kvf", payload_family(options)},
      {"kvp", pinned_family(options)}};
  for (auto& family : out) family.options.disable_auto_compactions = !options.compacts;
  return out;
}

/// Debian builds RocksDB with its assertions on, and one of them aborts the process at the second
/// line that its log file cannot take: after a full disk. So there is no log file; statuses say
/// what went wrong.
class NoLog final : public rocksdb::Logger {
 public:
  NoLog() : Logger(rocksdb::InfoLogLevel::FATAL_LEVEL) {}
  using Logger::Logv;
  void Logv(const char*, va_list) override {}
};

rocksdb::DBOptions database_options(const DatabaseOptions& options) {
  rocksdb::DBOptions out;
  out.create_if_missing = true;
  out.create_missing_column_families = true;
  out.paranoid_checks = true;
  // A damaged part of the log costs rows, which are misses: every row and record proves itself.
  out.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  out.max_total_wal_size = k_wal_bytes_max;
  out.max_open_files = -1;
  out.max_background_jobs = 2;
  out.max_bgerror_resume_count = 0;  // the store decides when to try again
  out.use_direct_reads = options.direct_io;
  out.use_direct_io_for_flush_and_compaction = options.direct_io;
  out.info_log = std::make_shared<NoLog>();
  out.max_manifest_file_size = uint64_t{4} << 20;
  out.stats_dump_period_sec = 0;
  out.stats_persist_period_sec = 0;
  if (options.write_bytes_per_second != 0) {
    out.rate_limiter.reset(
        rocksdb::NewGenericRateLimiter(static_cast<int64_t>(options.write_bytes_per_second)));
  }
  return out;
}

/// A link is none, wherever it leads.
bool is_there_and_no_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

/// What lies under the name of a file and is none: a directory, a link, a pipe. RocksDB says of
/// directories what it says of a disk that fails, and of LOCK that another process holds it; it
/// waits for pipes and writes through links. Other names are none of ours.
std::vector<std::string> no_files(const std::string& directory) {
  static const std::regex files(
      "CURRENT|IDENTITY|LOCK|OPENING|SALVAGING|\\.salvaging|\\.writable|(MANIFEST|OPTIONS)-\\d+|"
      "\\d+\\.(sst|ldb|log|dbtmp)");
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::regex_match(name, files) && is_there_and_no_file(at->path())) out.push_back(name);
  }
  return out;
}

/// Whether another process, or this one, holds the directory.
bool in_use(const std::string& directory) {
  const auto lock = DirectoryLock::take(directory);
  if (!lock && lock.error().code == ErrorCode::unavailable) return true;
  if (is_there_and_no_file(directory + "/LOCK")) return false;
  rocksdb::FileLock* file = nullptr;
  rocksdb::Env* const env = rocksdb::Env::Default();
  if (!env->LockFile(directory + "/LOCK", &file).ok()) return true;
  env->UnlockFile(file).PermitUncheckedError();
  return false;
}

/// RocksDB's repair takes from the log what is of families that have a table, and nothing else. The
/// key is no id.
rocksdb::Status give_each_a_table(rocksdb::DB& db,
                                  std::initializer_list<rocksdb::ColumnFamilyHandle*> families) {
  for (auto* family : families) {
    rocksdb::ColumnFamilyMetaData meta;
    db.GetColumnFamilyMetaData(family, &meta);
    if (meta.file_count != 0) continue;
    rocksdb::Status status = db.Put(rocksdb::WriteOptions(), family, "", "");
    if (status.ok()) status = db.Flush(rocksdb::FlushOptions(), family);
    if (!status.ok()) return status;
  }
  return rocksdb::Status::OK();
}

/// RocksDB would make an empty database of tables whose CURRENT is lost, and delete the tables. The
/// first MANIFEST by itself is a database that was killed while it was made: nothing is lost.
bool lost_its_head(const std::string& directory) {
  std::error_code ignored;
  if (fs::exists(directory + "/CURRENT", ignored)) return false;
  fs::directory_iterator at(directory, ignored);
  for (; !ignored && at != fs::directory_iterator(); at.increment(ignored)) {
    const std::string name = at->path().filename().string();
    const bool later_manifest = name.starts_with("MANIFEST") && name != "MANIFEST-000001";
    if (at->path().extension() == ".sst" || later_manifest) return true;
  }
  return false;
}

/// A salvage makes tables of the logs.
Result<void> check_room(const std::string& directory) {
  uint64_t logs = 0;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const uint64_t bytes = at->path().extension() == ".log" ? at->file_size(gone) : 0;
    if (!gone) logs += bytes;
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

/// Of two tables with overlapping writes, which RocksDB's repair refuses: the one to do without.
/// The wider one is what a compaction made of others, whose records they still have; else one is
/// the other's copy.
std::optional<uint64_t> overlapping_table(const std::string& text) {
  static const std::regex pair(
      "L0 file #(\\d+) with seqno (\\d+) (\\d+) vs\\. file #(\\d+) with seqno (\\d+) (\\d+)");
  std::smatch found;
  if (!std::regex_search(text, found, pair)) return std::nullopt;
  std::array<uint64_t, 6> at{};
  for (size_t i = 0; i < at.size(); ++i) {
    at[i] = std::strtoull(found[i + 1].str().c_str(), nullptr, 10);
  }
  const auto width = [&](size_t table) {
    return std::max(at[table + 1], at[table + 2]) - std::min(at[table + 1], at[table + 2]);
  };
  if (width(0) != width(3)) return width(0) > width(3) ? at[0] : at[3];
  return std::max(at[0], at[3]);
}

Result<void> set_aside(const std::string& directory, const std::string& table) {
  std::error_code error;
  fs::create_directories(directory + "/lost", error);
  fs::rename(directory + '/' + table, directory + "/lost/" + table, error);
  if (error) return fail(ErrorCode::io, directory + '/' + table + ": " + error.message());
  return {};
}

/// RocksDB's repair, which moves what it cannot use to lost/, without tables that it stumbles over.
Result<void> make_anew(const std::string& directory, const DatabaseOptions& options) {
  for (const std::string& table : tables_with_broken_properties(directory)) {
    OUTRIDER_TRY(set_aside(directory, table));
  }
  for (const LogDamage& damage : damaged_logs(directory)) {
    if (!damage.cut_at) continue;
    std::error_code error;
    fs::resize_file(directory + '/' + damage.log, *damage.cut_at, error);
    if (error) return fail(ErrorCode::io, damage.log + ": " + error.message());
  }
  for (int aside = 0;; ++aside) {
    rocksdb::Status status;
    try {
      status = rocksdb::RepairDB(directory, database_options(options), families_of(options));
    } catch (const std::exception& error) {
      return fail(ErrorCode::io, error.what());
    }
    if (status.ok()) return {};
    if (is_locked(status)) return fail(ErrorCode::unavailable, in_use_text(directory));
    const auto table = overlapping_table(status.ToString());
    if (!table || aside == k_tables_aside_max) return error_of(status);
    if (!set_aside(directory, table_name(*table))) return error_of(status);
  }
}

/// Of a directory that RocksDB would open, or make anew, and then delete the tables of; or that
/// would end the process.
std::optional<std::string> must_not_open(const std::string& directory) {
  if (const auto found = no_files(directory); !found.empty()) {
    return found.front() + " is not a file";
  }
  if (Database::salvage_was_cut_off(directory)) return "a salvage of it did not come to its end";
  if (OpeningMark::deaths(directory) >= k_opening_deaths_max) {
    return "the last " + std::to_string(k_opening_deaths_max) +
           " processes that opened it died of that";
  }
  if (lost_its_head(directory)) return "CURRENT, which names the list of its tables, is lost";
  if (const auto broken = tables_with_broken_properties(directory); !broken.empty()) {
    return "a table, " + broken.front() + ", is damaged (its properties)";
  }
  if (const auto damaged = damaged_logs(directory); !damaged.empty()) {
    return "a log, " + damaged.front().log + ", " + damaged.front().what;
  }
  return std::nullopt;
}

}  // namespace

bool Database::salvage_was_cut_off(const std::string& directory) {
  return SalvageMark::is_there(directory);
}

uint32_t Database::salvage_tries(const std::string& directory) {
  return SalvageMark::tries(directory);
}

Result<void> Database::check_free(const std::string& directory) {
  if (!SalvageMark::is_held(directory) && !in_use(directory)) return {};
  return fail(ErrorCode::unavailable, in_use_text(directory));
}

/// What the operating system says, which RocksDB's words do not tell apart.
std::optional<OpenError> Database::cannot_write(const std::string& directory) {
  const std::string path = directory + "/.writable";
  std::error_code ignored;
  fs::remove_all(path, ignored);  // a directory, perhaps
  errno = 0;                      // a short write sets none
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
  const std::vector<char> bytes(size_t{1} << 20);
  const bool written =
      fd >= 0 && ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  const int why = fd >= 0 && errno == 0 ? ENOSPC : errno;
  if (fd >= 0) ::close(fd);
  ::unlink(path.c_str());
  if (written) return std::nullopt;
  OpenFailure failure = OpenFailure::other;
  if (why == EROFS || why == EACCES || why == EPERM) failure = OpenFailure::read_only;
  if (why == ENOSPC || why == EDQUOT || why == EFBIG) failure = OpenFailure::no_space;
  return OpenError{failure, directory + ": " + std::strerror(why), {}};
}

Result<void> Database::salvage(const std::string& directory, const DatabaseOptions& options) {
  OUTRIDER_TRY(check_free(directory));
  OUTRIDER_TRY(check_room(directory));
  for (const std::string& name : no_files(directory)) {
    std::error_code error;
    fs::remove_all(directory + '/' + name, error);
    if (error) return fail(ErrorCode::corrupt, directory + '/' + name + ": " + error.message());
  }
  auto mark = SalvageMark::make(directory);
  if (!mark) return mark.error();
  auto done = make_anew(directory, options);
  if (done) {
    auto opened = open_anyway(directory, options);
    done =
        opened.database ? opened.database->write_lost(directory + "/lost") : as_error(opened.error);
  }
  if (!done) {
    const ErrorCode code = done.error().code;
    if (code == ErrorCode::unavailable || code == ErrorCode::too_large) mark->forgive();
    return done;
  }
  std::error_code ignored;
  fs::remove_all(directory + "/lost", ignored);
  OpeningMark::remove(directory);
  return mark->remove();
}

Database::Opened Database::open(const std::string& directory, const DatabaseOptions& options) {
  if (!options.read_only) {
    if (auto error = cannot_write(directory)) return {nullptr, *error};
  }
  if (const auto damage = must_not_open(directory)) {
    // Its owner may be at it.
    if (SalvageMark::is_held(directory) || (!options.read_only && in_use(directory))) {
      return {nullptr, {OpenFailure::in_use, in_use_text(directory), {}}};
    }
    return {nullptr, {OpenFailure::damaged, *damage, {}}};
  }
  if (options.read_only) return open_anyway(directory, options);
  const OpeningMark mark(directory);
  return open_anyway(directory, options);
}

Database::Opened Database::open_anyway(const std::string& directory,
                                       const DatabaseOptions& options) {
  auto state = std::make_unique<State>();
  state->options = options;
  std::string path = directory;
  if (!options.read_only) {
    auto lock = DirectoryLock::take(directory);
    if (!lock) {
      if (lock.error().code != ErrorCode::unavailable) {
        return {nullptr, {OpenFailure::other, lock.error().message, {}}};
      }
      return {nullptr, {OpenFailure::in_use, in_use_text(directory), {}}};
    }
    if (const std::string fixed = lock->path(); !fixed.empty()) path = fixed;
    state->lock.emplace(std::move(*lock));
  }
  const auto families = families_of(options);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  try {
    const rocksdb::DBOptions how = database_options(options);
    const rocksdb::Status status =
        options.read_only ? rocksdb::DB::OpenForReadOnly(how, path, families, &handles, &db)
                          : rocksdb::DB::Open(how, path, families, &handles, &db);
    if (!status.ok()) {
      if (options.direct_io && status.ToString().find("irect I/O") != std::string::npos) {
        DatabaseOptions buffered = options;
        buffered.direct_io = false;
        state.reset();
        return open_anyway(directory, buffered);
      }
      return {nullptr, open_error(directory, status)};
    }
  } catch (const std::exception& error) {  // no memory, no thread
    return {nullptr, {OpenFailure::other, error.what(), {}}};
  }
  state->db.reset(db);
  state->marks = handles[0];
  state->rows = handles[1];
  state->payload = handles[2];
  state->pinned = handles[3];
  if (!options.read_only) {
    const auto status = give_each_a_table(*db, {state->rows, state->pinned});
    if (!status.ok()) return {nullptr, open_error(directory, status)};
  }
  return {std::unique_ptr<Database>(new Database(std::move(state))), {}};
}

}  // namespace outrider::kvstore
