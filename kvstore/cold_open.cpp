#include "kvstore/cold_open.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "kvstore/store_core.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

Outage outage_of(OpenFailure why) {
  switch (why) {
    case OpenFailure::read_only:
      return Outage::read_only;
    case OpenFailure::no_space:
      return Outage::no_space;
    case OpenFailure::damaged:
      return Outage::damaged;
    case OpenFailure::other:
      break;
  }
  return Outage::io_error;
}

Outage outage_of(const Error& error) {
  if (error.code == ErrorCode::too_large) return Outage::no_space;
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

/// Reads marks and rows. An error of code corrupt means that the content is damaged.
Result<void> take_stock(OpenedStore& out, const std::function<uint64_t()>& random_bits) {
  Database& database = *out.database;
  const auto format = database.mark(k_format_mark);
  if (format && *format != k_format) {
    return fail(ErrorCode::corrupt, "the store has format " + *format);
  }
  if (!format) {
    std::array<uint8_t, 16> uuid{};
    for (uint8_t& byte : uuid) byte = static_cast<uint8_t>(random_bits() >> 32);
    OUTRIDER_TRY(database.set_mark(k_uuid_mark, to_hex(uuid)));
    OUTRIDER_TRY(database.set_mark(k_format_mark, k_format));
  }
  out.made = !format;
  out.unclean = format.has_value() && !database.mark(k_clean_mark);
  out.store_uuid = database.mark(k_uuid_mark).value_or("");
  OUTRIDER_TRY(database.delete_mark(k_clean_mark));
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
  for (const std::string& key : broken) OUTRIDER_TRY(database.delete_broken_row(key));
  out.broken_rows = broken.size();
  std::sort(out.rows.begin(), out.rows.end(), [](const auto& a, const auto& b) {
    if (a.second.used_at != b.second.used_at) return a.second.used_at < b.second.used_at;
    if (a.second.depth != b.second.depth) return a.second.depth > b.second.depth;
    return a.first < b.first;
  });
  return {};
}

/// One try. A damaged directory leaves `outage` damaged and no database.
OpenedStore try_open(const ColdStoreOptions& options,
                     const std::function<uint64_t()>& random_bits) {
  OpenedStore out;
  auto opened = Database::open(database_directory(options.directory), database_options(options));
  out.database = std::move(opened.database);
  if (!out.database) {
    out.outage = outage_of(opened.error.why);
    out.outage_text = opened.error.message;
    return out;
  }
  if (const auto stock = take_stock(out, random_bits); !stock) {
    OpenedStore failed;
    failed.outage = outage_of(stock.error());
    failed.outage_text = stock.error().message;
    out.database.reset();
    return failed;
  }
  return out;
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
    const auto size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) sum += size;
  }
  return sum;
}

Result<void> quarantine(const std::string& directory, uint64_t kept_bytes_max) {
  std::error_code error;
  const std::string to = quarantine_directory(directory);
  fs::remove_all(to, error);
  fs::rename(database_directory(directory), to, error);
  if (error) return fail(ErrorCode::io, "cannot move " + directory + "/db: " + error.message());
  // Payload proves nothing to who looks for the cause; logs, manifest and rows are small.
  std::vector<std::pair<uint64_t, fs::path>> files;
  fs::directory_iterator at(to, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
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

OpenedStore open_store(const ColdStoreOptions& options,
                       const std::function<uint64_t()>& random_bits,
                       const std::string& known_damage) {
  std::error_code error;
  fs::create_directories(database_directory(options.directory), error);
  OpenedStore out;
  out.outage_text = known_damage;
  if (known_damage.empty()) {
    out = try_open(options, random_bits);
    if (out.database || out.outage != Outage::damaged) return out;
  }
  if (const auto moved = quarantine(options.directory, options.cap_bytes / 16); !moved) {
    out.outage = Outage::damaged;
    out.outage_text = moved.error().message;
    return out;
  }
  fs::create_directories(database_directory(options.directory), error);
  const std::string why = out.outage_text;
  out = try_open(options, random_bits);
  out.quarantined = 1;
  out.quarantined_why = why;
  if (out.database) out.outage_text = why;
  return out;
}

}  // namespace outrider::kvstore
