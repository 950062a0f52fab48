#include <fcntl.h>
#include <rocksdb/sst_file_reader.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>

#include "kvstore/database_state.hpp"
#include "kvstore/directory_check.hpp"
#include "kvstore/log_check.hpp"
#include "kvstore/salvage_mark.hpp"
#include "kvstore/table_check.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

/// Kills do that rarely, what ends the process each time does nothing else.
constexpr uint32_t k_opening_deaths_max = 5;

/// Whether another process, or this one, holds the directory.
bool in_use(const std::string& directory) {
  const auto lock = DirectoryLock::take(directory);
  if (!lock && lock.error().code == ErrorCode::unavailable) return true;
  std::error_code none;
  const fs::file_status file_lock = fs::symlink_status(directory + "/LOCK", none);
  if (fs::exists(file_lock) && !fs::is_regular_file(file_lock)) return false;
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

/// A link that leads nowhere is a disk that is not mounted: what it holds may be fine.
std::optional<OpenError> is_no_directory(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_symlink(fs::symlink_status(path, ignored)) && !fs::exists(status)) {
    return OpenError{OpenFailure::other, path + " leads nowhere: is its disk mounted?", {}};
  }
  if (!fs::exists(status) || fs::is_directory(status)) return std::nullopt;
  return OpenError{OpenFailure::damaged, path + " is not a directory", {}};
}

/// Ours that the list of tables does not name. None where there is no list, or it cannot be read.
std::vector<std::string> missing_families(const std::string& directory) {
  std::vector<std::string> named;
  const auto listed = rocksdb::DB::ListColumnFamilies(database_options({}), directory, &named);
  std::vector<std::string> out;
  if (!listed.ok()) return out;
  for (const auto& family : families_of({})) {
    if (std::find(named.begin(), named.end(), family.name) == named.end())
      out.push_back(family.name);
  }
  return out;
}

/// Whether a table has records of one of these families.
bool has_table_of(const std::string& directory, const std::vector<std::string>& families) {
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    rocksdb::SstFileReader table{rocksdb::Options()};
    if (at->path().extension() != ".sst" || !table.Open(at->path().string()).ok()) continue;
    const auto properties = table.GetTableProperties();
    if (properties && std::find(families.begin(), families.end(), properties->column_family_name) !=
                          families.end()) {
      return true;
    }
  }
  return false;
}

/// Of a directory that RocksDB would open, or make anew, and then delete the tables of; or that
/// would end the process.
std::optional<std::string> must_not_open(const std::string& directory) {
  if (const auto found = in_the_way(directory); !found.empty()) {
    return found.front().name + ' ' + found.front().what;
  }
  if (Database::salvage_was_cut_off(directory)) return "a salvage of it did not come to its end";
  if (OpeningMark::deaths(directory) >= k_opening_deaths_max) {
    return "the last " + std::to_string(k_opening_deaths_max) +
           " processes that opened it died of that";
  }
  if (lost_its_head(directory)) return "CURRENT, which names the list of its tables, is lost";
  if (auto damage = damage_of_list(directory); !damage.empty()) return damage;
  if (const auto damaged = damaged_tables(directory); !damaged.empty()) {
    return "a table, " + damaged.front().table + ", " + damaged.front().what;
  }
  if (const auto damaged = damaged_logs(directory); !damaged.empty()) {
    return "a log, " + damaged.front().log + ", " + damaged.front().what;
  }
  const auto missing = missing_families(directory);
  if (!missing.empty() && has_table_of(directory, missing)) {
    return "the list of its tables is cut short: it has none of " + missing.front();
  }
  return std::nullopt;
}

}  // namespace

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

Database::Opened Database::open(const std::string& directory, const DatabaseOptions& options) {
  if (auto error = is_no_directory(directory)) return {nullptr, *error};
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
  if (options.read_only) {
    if (missing_families(directory).empty()) return open_anyway(directory, options);
    return {nullptr, {OpenFailure::other, directory + " holds no KV store: it was being made", {}}};
  }
  auto mark = std::make_unique<OpeningMark>(directory);
  Opened opened = open_anyway(directory, options);
  if (opened.database) opened.database->state_->opening = std::move(mark);
  return opened;
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
  state->current = current_of(*db);
  state->found_sequence = db->GetLatestSequenceNumber();
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
