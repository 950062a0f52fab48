#include "kvstore/cold_open.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <unordered_set>

#include "kvstore/salvage_mark.hpp"
#include "kvstore/store_core.hpp"
#include "kvstore/store_place.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

/// A salvage reads all of a directory: at 500 MB/s this is a minute.
constexpr uint64_t k_salvage_bytes_max = uint64_t{32} << 30;
/// A salvage that was killed is begun again, but one that kills is not for ever.
constexpr uint32_t k_salvage_tries_max = 3;

Outage outage_of(OpenFailure why) {
  switch (why) {
    case OpenFailure::read_only:
      return Outage::read_only;
    case OpenFailure::no_space:
      return Outage::no_space;
    case OpenFailure::damaged:
      return Outage::damaged;
    case OpenFailure::in_use:
      return Outage::in_use;
    case OpenFailure::other:
      break;
  }
  return Outage::io_error;
}

Outage outage_of(const Error& error) {
  if (error.code == ErrorCode::too_large) return Outage::no_space;
  if (error.code == ErrorCode::unavailable) return Outage::in_use;
  return error.code == ErrorCode::io ? Outage::io_error : Outage::damaged;
}

DatabaseOptions database_options(const ColdStoreOptions& options) {
  const Shares shares = shares_of(options, disk_bytes(quarantine_directory(options.directory)));
  DatabaseOptions out;
  out.payload_cap_bytes = shares.payload_bytes;
  out.payload_buffer_bytes = options.buffer_bytes;
  out.pinned_buffer_bytes =
      std::clamp(shares.pinned_bytes / 8, uint64_t{1} << 20, uint64_t{16} << 20);
  out.write_bytes_per_second = options.write_bytes_per_second;
  out.direct_io = options.direct_io;
  return out;
}

/// Reads marks and rows. An error of code corrupt means that the content is damaged; unsupported,
/// that another program wrote it.
Result<void> take_stock(OpenedStore& out, const std::function<uint64_t()>& random_bits) {
  Database& database = *out.database;
  if (const auto all = database.marks(""); !all) return all.error();
  const auto format = database.mark(k_format_mark);
  if (format && *format != k_format) {
    return fail(ErrorCode::unsupported, "the store has format " + *format);
  }
  if (!format) {
    std::array<uint8_t, 16> uuid{};
    for (uint8_t& byte : uuid) byte = static_cast<uint8_t>(random_bits() >> 32);
    OUTRIDER_TRY(database.set_mark(k_uuid_mark, to_hex(uuid)));
    OUTRIDER_TRY(database.set_mark(k_format_mark, k_format));
  }
  out.store_uuid = database.mark(k_uuid_mark).value_or("");
  OUTRIDER_ASSIGN(out.files, database.payload_files());
  std::vector<std::string> broken;
  const bool no_files = out.files.files == 0;
  OUTRIDER_TRY(database.each_row(
      [&](const BlockId& id, const Row& row) {
        const bool gone =
            row.place == Place::fifo && (no_files || row.sequence < out.files.oldest_sequence);
        (gone ? out.gone : out.rows).emplace_back(id, row);
      },
      [&](std::string_view key) { broken.emplace_back(key); }));
  out.made = !format && out.rows.empty() && out.gone.empty();
  out.unclean = !out.made && !database.was_closed();
  OUTRIDER_TRY(database.unmark_closed());  // not of one that is salvaged after this
  for (const std::string& key : broken) OUTRIDER_TRY(database.delete_broken_row(key));
  out.broken_rows = broken.size();
  std::sort(out.rows.begin(), out.rows.end(), [](const auto& a, const auto& b) {
    if (a.second.used_at != b.second.used_at) return a.second.used_at < b.second.used_at;
    if (a.second.depth != b.second.depth) return a.second.depth > b.second.depth;
    return a.first < b.first;
  });
  return {};
}

/// After a salvage: lets go of rows whose record is in no table, and of pinned records that no row
/// names.
Result<void> let_go_of_lost(OpenedStore& out) {
  const std::vector<SequenceRange> files = out.database->payload_sequences();
  const auto in_a_file = [&](uint64_t sequence) {
    const auto after = std::upper_bound(
        files.begin(), files.end(), sequence,
        [](uint64_t value, const SequenceRange& file) { return value < file.first; });
    return after != files.begin() && sequence <= std::prev(after)->last;
  };
  std::vector<BlockId> stored;
  OUTRIDER_ASSIGN(stored, out.database->pinned_ids());
  std::unordered_set<BlockId, BlockIdHash> pinned(stored.begin(), stored.end());
  std::erase_if(out.rows, [&](const auto& entry) {
    const auto& [id, row] = entry;
    const bool here = row.place == Place::pinned ? pinned.erase(id) != 0 : in_a_file(row.sequence);
    if (!here) out.gone.push_back(entry);
    return !here;
  });
  out.lost_records = out.database->lost_records(out.rows.size());
  RowBatch unnamed;
  for (const BlockId& id : pinned) unnamed.delete_pinned(id);
  return out.database->write(unnamed, out.rows.size());
}

/// With its content, or none and why not.
OpenedStore with_stock(std::unique_ptr<Database> database, bool salvaged, const Opening& how) {
  OpenedStore out;
  out.database = std::move(database);
  out.salvaged = salvaged;
  auto stock = take_stock(out, how.random_bits);
  if (stock && salvaged) stock = let_go_of_lost(out);
  if (stock) stock = out.database->settle();
  if (stock) return out;
  OpenedStore failed;
  failed.outage = outage_of(stock.error());
  failed.outage_text = stock.error().message;
  failed.foreign = stock.error().code == ErrorCode::unsupported;
  return failed;
}

/// One try. A damaged directory leaves `outage` damaged and no database.
OpenedStore try_open(const ColdStoreOptions& options, const Opening& how) {
  auto opened = Database::open(database_directory(options.directory), database_options(options));
  if (opened.database) return with_stock(std::move(opened.database), false, how);
  OpenedStore out;
  out.outage = outage_of(opened.error.why);
  out.outage_text = opened.error.text();
  return out;
}

/// No database, and an outage that is none or damaged: it cannot be.
OpenedStore salvage(const ColdStoreOptions& options, const Opening& how,
                    const std::string& damage) {
  OpenedStore none;
  const std::string path = database_directory(options.directory);
  if (!how.may_salvage || !fs::is_directory(path) || !is_salvaged_at_start(path)) return none;
  if (how.salvaging) how.salvaging(disk_bytes(path), damage);
  const DatabaseOptions database = database_options(options);
  if (!how.known_damage.empty()) {
    // What a compaction left that failed overlaps its sources: an opening deletes it.
    DatabaseOptions without_another = database;
    without_another.compacts = false;
    Database::open(path, without_another);
  }
  auto salvaged = Database::salvage(path, database);
  if (!salvaged) {
    const ErrorCode code = salvaged.error().code;
    if (code != ErrorCode::unavailable && code != ErrorCode::too_large) return none;
    none.outage = outage_of(salvaged.error());
    none.outage_text = salvaged.error().message;
    return none;
  }
  OpenedStore out = with_stock(std::move(*salvaged), true, how);
  if (!out.database) return out;
  if (out.rows.empty()) return none;
  out.damage = out.outage_text = damage;
  return out;
}

/// What is stored are people's texts, in files that RocksDB lets everybody read.
void make_private(const std::string& directory) {
  struct stat found {};
  if (::stat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) return;
  if (found.st_uid != ::geteuid() || (found.st_mode & (S_IRWXG | S_IRWXO)) == 0) return;
  ::chmod(directory.c_str(), found.st_mode & 07700U);
}

/// Makes them where they are not.
void make_directories(const ColdStoreOptions& options) {
  std::error_code ignored;
  for (const std::string& directory : {options.directory, database_directory(options.directory)}) {
    fs::create_directories(directory, ignored);
    make_private(directory);
  }
  make_private(quarantine_directory(options.directory));
  if (options.restore) options.restore();
}

bool is_damaged(const OpenedStore& store) {
  return !store.database && (store.outage == Outage::none || store.outage == Outage::damaged);
}

}  // namespace

std::string hex_of(uint64_t value) {
  char text[17] = {};
  std::to_chars(text, text + 16, value, 16);
  return text;
}
std::string tenant_mark(uint64_t tenant) {
  return "tenant/" + hex_of(tenant);
}
std::string namespace_mark(uint64_t short_ns) {
  return "ns/" + hex_of(short_ns);
}

std::string database_directory(const std::string& directory) {
  return directory + "/db";
}
std::string quarantine_directory(const std::string& directory) {
  return directory + "/quarantine";
}

uint64_t disk_bytes(const std::string& directory) {
  uint64_t sum = 0;
  std::error_code ignored;
  auto at = fs::recursive_directory_iterator(directory, ignored);
  for (; !ignored && at != fs::recursive_directory_iterator(); at.increment(ignored)) {
    std::error_code gone;  // files come and go while a store runs
    const bool is_file = fs::is_regular_file(at->symlink_status(gone));
    const uint64_t size = is_file ? at->file_size(gone) : 0;
    if (!gone) sum += size;
  }
  return sum;
}

bool is_salvaged_at_start(const std::string& path) {
  return disk_bytes(path) <= k_salvage_bytes_max &&
         Database::salvage_tries(path) < k_salvage_tries_max;
}

Result<void> quarantine(const std::string& directory, uint64_t kept_bytes_max) {
  const std::string from = database_directory(directory);
  const std::string to = quarantine_directory(directory);
  std::error_code error;
  const bool is_directory = fs::is_directory(from, error);
  if (is_directory) OUTRIDER_TRY(Database::check_free(from));
  fs::remove_all(to, error);
  if (!is_directory) fs::create_directories(to, error);
  fs::rename(from, is_directory ? to : to + "/db", error);
  if (error) return fail(ErrorCode::io, "cannot move " + from + ": " + error.message());
  // Payload proves nothing to who looks for the cause; logs, manifest and rows are small.
  std::vector<std::pair<uint64_t, fs::path>> files;
  fs::recursive_directory_iterator at(to, error);  // with what a salvage could not read
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code gone;
    const uint64_t bytes = at->file_size(gone);
    if (!gone) files.emplace_back(bytes, at->path());
  }
  std::sort(files.begin(), files.end());
  uint64_t kept = disk_bytes(to);
  for (; kept > kept_bytes_max && !files.empty(); files.pop_back()) {
    fs::remove(files.back().second, error);
    kept -= files.back().first;
  }
  return {};
}

OpenedStore open_store(const ColdStoreOptions& options, const Opening& how) {
  OpenedStore out;
  if (is_away(options.directory, how.file_system)) {
    out.outage = Outage::io_error;
    out.outage_text = options.directory + " is not on its file system any more: is it mounted?";
    return out;
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  const auto lock = DirectoryLock::take(options.directory);
  if (!lock && lock.error().code == ErrorCode::unavailable) {
    out.outage = outage_of(lock.error());
    out.outage_text = lock.error().message;
    return out;
  }
  make_directories(options);
  out.outage_text = how.known_damage;
  if (how.known_damage.empty()) {
    out = try_open(options, how);
    if (!is_damaged(out)) return out;
  }
  const std::string damage = out.outage_text;
  if (!lock) {
    out.outage = Outage::damaged;
    out.outage_text += "; left as it is: " + lock.error().message;
    return out;
  }
  if (!out.foreign) {
    out = salvage(options, how, damage);
    if (!is_damaged(out)) return out;
  }
  out = {};
  if (const auto moved = quarantine(options.directory, options.cap_bytes / 16); !moved) {
    const bool in_use = moved.error().code == ErrorCode::unavailable;
    out.outage = in_use ? Outage::in_use : Outage::damaged;
    out.outage_text = moved.error().message;
    return out;
  }
  make_directories(options);
  out = try_open(options, how);
  out.quarantined = true;
  out.damage = damage;
  if (out.database) out.outage_text = damage;
  return out;
}

}  // namespace outrider::kvstore
