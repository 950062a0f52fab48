#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "kvstore/database_state.hpp"
#include "kvstore/table_check.hpp"

namespace outrider::kvstore {
namespace {

namespace fs = std::filesystem;

using Entry =
    std::function<rocksdb::Status(const rocksdb::Slice& key, const rocksdb::Slice& value)>;

/// The first bytes of a key, in its order.
uint64_t prefix_of(const rocksdb::Slice& key) {
  uint64_t prefix = 0;
  for (size_t i = 0; i < 8; ++i) {
    prefix = prefix << 8 | (i < key.size() ? static_cast<uint8_t>(key[i]) : 0);
  }
  return prefix;
}

using Position = std::unique_ptr<rocksdb::Iterator>;

Position open(rocksdb::SstFileReader& table) {
  rocksdb::ReadOptions how;
  how.fill_cache = false;
  return Position(table.NewIterator(how));
}

/// Stands at the first key from `prefix` on, or in a block that does not verify. Each time another
/// iterator: one that met a bad block says of the good one where it was before that it is bad.
Position seek(rocksdb::SstFileReader& table, uint64_t prefix) {
  std::array<char, 8> key{};
  for (size_t i = 0; i < 8; ++i) key[i] = static_cast<char>(prefix >> (56 - 8 * i));
  Position at = open(table);
  at->Seek({key.data(), key.size()});
  return at;
}

/// Goes behind blocks that do not verify, of which the first has keys from `bad` on. Looks for the
/// next good one by strides, for more than one may be bad, then bisects to its first key: ids are
/// as good as unique in their first bytes. Returns that prefix; none when nothing follows that can
/// be read.
std::optional<uint64_t> first_behind(rocksdb::SstFileReader& table, uint64_t bad, uint64_t stride) {
  uint64_t good = bad;
  do {
    if (good == UINT64_MAX) return std::nullopt;
    bad = good;
    good += std::min(stride, UINT64_MAX - good);
  } while (!seek(table, good)->status().ok());
  while (good - bad > 1) {
    const uint64_t middle = bad + (good - bad) / 2;
    (seek(table, middle)->status().ok() ? good : bad) = middle;
  }
  return good;
}

/// An eighth of what a block has of all prefixes, for ids are evenly spread.
uint64_t stride_of(uint64_t blocks_noted, uint64_t file_bytes) {
  constexpr uint64_t k_block_bytes = 4096;  // RocksDB's; the last one may be smaller
  const uint64_t blocks = std::min(blocks_noted, file_bytes / k_block_bytes);
  return UINT64_MAX / 8 / (blocks + 1);
}

/// What can be read of one table; nothing if its own index cannot.
rocksdb::Status each_entry(rocksdb::SstFileReader& table, uint64_t stride, const Entry& entry) {
  Position at = open(table);
  uint64_t reached = 0;
  for (at->SeekToFirst();;) {
    for (; at->Valid(); at->Next()) {
      reached = std::max(reached, prefix_of(at->key()));
      if (auto status = entry(at->key(), at->value()); !status.ok()) return status;
    }
    if (at->status().ok()) return at->status();
    const auto behind = first_behind(table, reached, stride);
    if (!behind) return rocksdb::Status::OK();
    reached = *behind;
    at = seek(table, reached);
  }
}

/// A table that was left out, where it can be opened.
struct LostTable {
  std::unique_ptr<rocksdb::SstFileReader> file;
  std::string family;
  uint64_t bytes = 0;
  uint64_t stride = 0;

  rocksdb::Status each(const Entry& entry) { return each_entry(*file, stride, entry); }
};

std::optional<LostTable> open_lost(const fs::path& path) {
  std::error_code gone;
  auto file = std::make_unique<rocksdb::SstFileReader>(rocksdb::Options());
  if (!file->Open(path.string()).ok()) return std::nullopt;
  const auto properties = file->GetTableProperties();
  const uint64_t bytes = fs::file_size(path, gone);
  if (!properties || gone) return std::nullopt;
  return LostTable{std::move(file), properties->column_family_name, bytes,
                   stride_of(properties->num_data_blocks, bytes)};
}

/// But for those at which RocksDB would end the process.
std::vector<fs::path> lost_tables(const std::string& directory) {
  const std::vector<TableDamage> damaged = damaged_tables(directory);
  std::vector<fs::path> out;
  std::error_code none;
  fs::directory_iterator at(directory, none);
  for (; !none && at != fs::directory_iterator(); at.increment(none)) {
    std::error_code gone;
    const bool is_file = fs::is_regular_file(at->symlink_status(gone));
    if (at->path().extension() != ".sst" || !is_file) continue;
    const std::string name = at->path().filename().string();
    const auto is_this = [&](const TableDamage& damage) { return damage.table == name; };
    if (std::none_of(damaged.begin(), damaged.end(), is_this)) out.push_back(at->path());
  }
  return out;
}

}  // namespace

/// Marks, rows and pinned records. What is there is not replaced, for no number says which is
/// newer; a row proves itself, and what comes back after its deletion is a right record all the
/// same.
Result<void> Database::write_lost_rows(const std::string& tables) {
  const std::map<std::string, rocksdb::ColumnFamilyHandle*> families = {
      {rocksdb::kDefaultColumnFamilyName, state_->marks},
      {"idx", state_->rows},
      {"kvp", state_->pinned}};
  for (const fs::path& path : lost_tables(tables)) {
    auto table = open_lost(path);
    const auto family = table ? families.find(table->family) : families.end();
    if (family == families.end()) continue;
    auto* const into = family->second;
    const auto status = table->each([&](const rocksdb::Slice& key, const rocksdb::Slice& value) {
      std::string known;
      const auto there = state_->db->Get(rocksdb::ReadOptions(), into, key, &known);
      if (there.ok() || there.IsCorruption()) return rocksdb::Status::OK();  // it is there
      if (!there.IsNotFound()) return there;
      return state_->db->Put(rocksdb::WriteOptions(), into, key, value);
    });
    if (!status.ok()) return error_of(status);
  }
  for (const auto& [name, into] : families) {
    if (auto status = state_->db->Flush(rocksdb::FlushOptions(), into); !status.ok()) {
      return error_of(status);
    }
  }
  return {};
}

/// Records of payload tables, each left out for one bad block, that a row waits for: they go to the
/// FIFO's end. A table that the disk has no room to write again stays lost.
Result<void> Database::write_lost_payload(const std::string& tables) {
  constexpr uint64_t k_spare_bytes = uint64_t{16} << 20;
  for (const fs::path& path : lost_tables(tables)) {
    auto table = open_lost(path);
    std::error_code unknown;
    const uint64_t room = fs::space(tables, unknown).available;
    if (!table || table->family != "kvf" || unknown || room < table->bytes + k_spare_bytes)
      continue;
    RowBatch rows;
    const auto status = table->each([&](const rocksdb::Slice& key, const rocksdb::Slice& value) {
      rocksdb::PinnableSlice found;
      const auto there = state_->db->Get(rocksdb::ReadOptions(), state_->payload, key, &found);
      if (there.ok() || there.IsCorruption()) return rocksdb::Status::OK();  // it is there
      if (!there.IsNotFound()) return there;
      found.Reset();
      const auto known = state_->db->Get(rocksdb::ReadOptions(), state_->rows, key, &found);
      const auto id = id_of(key);
      auto row = known.ok() && id ? decode_row(*id, bytes_of(found)) : std::nullopt;
      if (!row || row->place != Place::fifo) return rocksdb::Status::OK();
      const auto sequence = put_payload(*id, bytes_of(value));
      if (!sequence) return rocksdb::Status::IOError(sequence.error().message);
      row->sequence = *sequence;
      rows.put_row(*id, *row);
      return rocksdb::Status::OK();
    });
    if (!status.ok()) return error_of(status);
    OUTRIDER_TRY(flush_payload());
    OUTRIDER_TRY(write(rows));
  }
  return {};
}

/// Into a database that was just made anew: what can be read of tables that were left out.
Result<void> Database::write_lost(const std::string& tables) {
  OUTRIDER_TRY(write_lost_rows(tables));
  return write_lost_payload(tables);
}

}  // namespace outrider::kvstore
