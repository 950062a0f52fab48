#include <fcntl.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/rate_limiter.h>
#include <rocksdb/table.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>

#include "kvstore/database_state.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

constexpr size_t k_small_buffer_bytes = size_t{4} << 20;  // marks and rows
constexpr uint64_t k_wal_bytes_max = uint64_t{16} << 20;

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
  return {{rocksdb::kDefaultColumnFamilyName, small_family()},
          {"idx", small_family()},
          {"kvf", payload_family(options)},
          {"kvp", pinned_family(options)}};
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

OpenError open_error(const std::string& directory, const rocksdb::Status& status) {
  OpenFailure why = OpenFailure::other;
  if (status.IsNoSpace()) {
    why = OpenFailure::no_space;
  } else if (status.IsCorruption() || status.IsPathNotFound() || status.IsNotSupported() ||
             status.IsInvalidArgument() || status.IsNotFound()) {
    why = OpenFailure::damaged;
  }
  const bool locked = status.IsIOError() && status.ToString().find("/LOCK") != std::string::npos;
  if (locked) return {why, directory + " is in use by another process (a server?)"};
  return {why, status.ToString()};
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

}  // namespace

/// What the operating system says, which RocksDB's words do not tell apart.
std::optional<OpenError> Database::cannot_write(const std::string& directory) {
  const std::string path = directory + "/.writable";
  errno = 0;  // a short write sets none
  const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
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
  return OpenError{failure, directory + ": " + std::strerror(why)};
}

Result<void> Database::salvage(const std::string& directory, const DatabaseOptions& options) {
  rocksdb::Status status;
  try {
    status = rocksdb::RepairDB(directory, database_options(options), families_of(options));
  } catch (const std::exception& error) {
    return fail(ErrorCode::io, error.what());
  }
  std::error_code ignored;
  fs::remove_all(directory + "/lost", ignored);
  if (status.ok()) return {};
  return error_of(status);
}

Database::Opened Database::open(const std::string& directory, const DatabaseOptions& options) {
  if (!options.read_only) {
    if (auto error = cannot_write(directory)) return {nullptr, *error};
  }
  if (lost_its_head(directory)) {
    return {nullptr, {OpenFailure::damaged, directory + ": tables without CURRENT"}};
  }
  auto state = std::make_unique<State>();
  state->options = options;
  const auto families = families_of(options);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  try {
    const rocksdb::DBOptions how = database_options(options);
    const rocksdb::Status status =
        options.read_only ? rocksdb::DB::OpenForReadOnly(how, directory, families, &handles, &db)
                          : rocksdb::DB::Open(how, directory, families, &handles, &db);
    if (!status.ok()) {
      if (options.direct_io && status.ToString().find("irect I/O") != std::string::npos) {
        DatabaseOptions buffered = options;
        buffered.direct_io = false;
        return open(directory, buffered);
      }
      return {nullptr, open_error(directory, status)};
    }
  } catch (const std::exception& error) {  // no memory, no thread
    return {nullptr, {OpenFailure::other, error.what()}};
  }
  state->db.reset(db);
  state->marks = handles[0];
  state->rows = handles[1];
  state->payload = handles[2];
  state->pinned = handles[3];
  return {std::unique_ptr<Database>(new Database(std::move(state))), {}};
}

}  // namespace outrider::kvstore
