#include "kvstore/database.hpp"

#include <rocksdb/convenience.h>
#include <rocksdb/rate_limiter.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <set>
#include <sstream>

#include "kvstore/database_state.hpp"

namespace outrider::kvstore {
namespace {

/// How many there are, and the number of the write before the one that says so.
constexpr std::string_view k_records_mark = "records";
/// The number of the write that says so: an older word of it, which comes back where a table is
/// lost, says nothing.
constexpr std::string_view k_closed_mark = "closed";

rocksdb::ReadOptions read_options() {
  rocksdb::ReadOptions how;
  how.verify_checksums = true;
  how.fill_cache = false;
  return how;
}

Result<void> result_of(const rocksdb::Status& status) {
  if (status.ok()) return {};
  return error_of(status);
}

/// Of these families, by file name, sorted.
std::vector<std::string> bad_tables_of(rocksdb::DB& db, const std::set<std::string>& families) {
  std::vector<rocksdb::LiveFileMetaData> tables;
  db.GetLiveFilesMetaData(&tables);
  std::vector<std::string> out;
  for (const auto& table : tables) {
    const std::string path = table.directory + '/' + table.relative_filename;
    if (families.contains(table.column_family_name) && has_bad_block(path)) {
      out.push_back(table.relative_filename);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// CURRENT, and the list of tables that it names.
std::vector<std::string> list_paths(rocksdb::DB& db) {
  std::vector<std::string> names;
  uint64_t list_bytes = 0;
  db.GetLiveFiles(names, &list_bytes, false).PermitUncheckedError();
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (name == "/CURRENT" || name.starts_with("/MANIFEST-")) out.push_back(db.GetName() + name);
  }
  return out;
}

}  // namespace

std::optional<FileIdentity> current_of(const rocksdb::DB& db) {
  struct stat found {};
  const std::string path = db.GetName() + "/CURRENT";
  if (::stat(path.c_str(), &found) == 0) {
    const auto& written = found.st_mtim;
    return FileIdentity{found.st_dev, found.st_ino,
                        int64_t{written.tv_sec} * 1'000'000'000 + written.tv_nsec};
  }
  return errno == ENOENT ? std::optional(FileIdentity{}) : std::nullopt;
}

bool has_bad_block(const std::string& table) {
  const auto status =
      rocksdb::VerifySstFileChecksum(rocksdb::Options(), rocksdb::EnvOptions(), table);
  // A compaction deletes tables meanwhile.
  return !status.ok() && ::access(table.c_str(), F_OK) == 0;
}

RowBatch::Ids RowBatch::ids_of(Kind kind) const {
  Ids ids;
  for (const Change& change : changes_) {
    if (change.kind == kind) ids.insert(change.id);
  }
  return ids;
}

/// RocksDB knows a directory by the path of its lock.
std::string text_of(const rocksdb::Status& status) {
  return DirectoryLock::with_names(status.ToString());
}

Error error_of(const rocksdb::Status& status) {
  ErrorCode code = ErrorCode::io;
  if (status.IsNotFound()) code = ErrorCode::not_found;
  if (status.IsCorruption()) code = ErrorCode::corrupt;
  if (status.IsNoSpace()) code = ErrorCode::too_large;
  return fail(code, text_of(status));
}

Database::State::~State() {
  if (!db) return;
  for (auto* handle : {marks, rows, payload, pinned}) {
    if (handle != nullptr) db->DestroyColumnFamilyHandle(handle).PermitUncheckedError();
  }
  db->Close().PermitUncheckedError();
}

Database::Database(std::unique_ptr<State> state) : state_(std::move(state)) {}
Database::~Database() = default;

Result<uint64_t> Database::put_payload(const BlockId& id, std::span<const std::byte> record) {
  rocksdb::WriteOptions how;
  how.disableWAL = true;
  OUTRIDER_TRY(result_of(state_->db->Put(how, state_->payload, slice_of(id), slice_of(record))));
  return uint64_t{state_->db->GetLatestSequenceNumber()};
}

Result<void> Database::flush_payload() {
  return result_of(state_->db->Flush(rocksdb::FlushOptions(), state_->payload));
}

void Database::lift_write_limit() {
  const auto limiter = state_->db->GetDBOptions().rate_limiter;
  constexpr int64_t k_any = int64_t{1} << 40;
  if (limiter) limiter->SetBytesPerSecond(k_any);
}

void Database::trim_payload() {
  rocksdb::CompactRangeOptions how;
  how.exclusive_manual_compaction = false;
  state_->db->CompactRange(how, state_->payload, nullptr, nullptr).PermitUncheckedError();
}

Result<PayloadFiles> Database::payload_files() const {
  rocksdb::ColumnFamilyMetaData meta;
  state_->db->GetColumnFamilyMetaData(state_->payload, &meta);
  std::vector<std::pair<uint64_t, uint64_t>> files;  // smallest sequence, bytes
  PayloadFiles out;
  for (const auto& level : meta.levels) {
    for (const auto& file : level.files) {
      files.emplace_back(file.smallest_seqno, file.size);
      out.bytes += file.size;
    }
  }
  std::sort(files.begin(), files.end());
  out.files = static_cast<uint32_t>(files.size());
  out.cap_bytes = state_->options.payload_cap_bytes;
  if (files.empty()) return out;
  out.oldest_sequence = files.front().first;
  // The first write that stays for so many more bytes.
  const auto stays_for = [&](uint64_t bytes_to_come) {
    uint64_t until_it_goes = out.cap_bytes > out.bytes ? out.cap_bytes - out.bytes : 0;
    for (const auto& [sequence, bytes] : files) {
      if (until_it_goes >= bytes_to_come) return sequence;
      until_it_goes += bytes;
    }
    return files.back().first;
  };
  // A flush comes as a whole.
  const uint64_t flush = state_->options.payload_buffer_bytes * 5 / 4;
  out.quarter_sequence = stays_for(std::max(out.cap_bytes / 4, 2 * flush));
  out.next_sequence = stays_for(std::max(out.cap_bytes / 16, flush));
  return out;
}

std::vector<SequenceRange> Database::payload_sequences() const {
  rocksdb::ColumnFamilyMetaData meta;
  state_->db->GetColumnFamilyMetaData(state_->payload, &meta);
  std::vector<SequenceRange> out;
  for (const auto& level : meta.levels) {
    for (const auto& file : level.files) out.push_back({file.smallest_seqno, file.largest_seqno});
  }
  std::sort(out.begin(), out.end(),
            [](const SequenceRange& a, const SequenceRange& b) { return a.first < b.first; });
  return out;
}

/// Pinned records last: of a log's batch a repair takes what comes before a family of which it has
/// no table.
Result<void> Database::write(const RowBatch& batch, std::optional<uint64_t> records) {
  using Kind = RowBatch::Kind;
  rocksdb::WriteBatch out;
  if (records) {
    const uint64_t sequence = state_->db->GetLatestSequenceNumber();
    const std::string count = std::to_string(*records) + " " + std::to_string(sequence);
    OUTRIDER_TRY(result_of(out.Put(state_->marks, slice_of(k_records_mark), count)));
  }
  for (const RowBatch::Change& change : batch.changes_) {
    rocksdb::Status status;
    if (change.kind == Kind::put_row) {
      const RowBytes row = encode_row(change.id, change.row);
      status = out.Put(state_->rows, slice_of(change.id), slice_of(row));
    } else if (change.kind == Kind::delete_row) {
      status = out.Delete(state_->rows, slice_of(change.id));
    }
    OUTRIDER_TRY(result_of(status));
  }
  for (const RowBatch::Change& change : batch.changes_) {
    rocksdb::Status status;
    if (change.kind == Kind::put_pinned) {
      status = out.Put(state_->pinned, slice_of(change.id), slice_of(change.record.bytes()));
    } else if (change.kind == Kind::delete_pinned) {
      status = out.Delete(state_->pinned, slice_of(change.id));
    }
    OUTRIDER_TRY(result_of(status));
  }
  return result_of(state_->db->Write(rocksdb::WriteOptions(), &out));
}

std::optional<uint64_t> Database::lost_records(uint64_t kept) const {
  std::istringstream count(mark(k_records_mark).value_or(""));
  uint64_t records = 0, sequence = 0;
  if (!(count >> records >> sequence)) return std::nullopt;
  // What the salvage itself wrote is no younger for that.
  const uint64_t found = state_->found_sequence;
  const auto is_newer = [&](uint64_t write) { return sequence < write && write <= found; };
  // Rows whose record is gone tell of it, too.
  bool is_old = false;
  const auto read =
      each_row([&](const BlockId&, const Row& row) { is_old |= is_newer(row.sequence); },
               [](std::string_view) {});
  if (!read || is_old) return std::nullopt;
  const auto files = payload_sequences();
  const auto file_is = [&](const SequenceRange& file) { return is_newer(file.last); };
  if (std::any_of(files.begin(), files.end(), file_is)) return std::nullopt;
  return records - std::min(records, kept);
}

Result<void> Database::set_mark(std::string_view name, std::string_view value) {
  rocksdb::WriteOptions how;
  how.sync = true;
  return result_of(state_->db->Put(how, state_->marks, slice_of(name), slice_of(value)));
}

Result<void> Database::delete_mark(std::string_view name) {
  rocksdb::WriteOptions how;
  how.sync = true;
  return result_of(state_->db->Delete(how, state_->marks, slice_of(name)));
}

Result<void> Database::mark_closed() {
  return set_mark(k_closed_mark, std::to_string(state_->db->GetLatestSequenceNumber() + 1));
}

bool Database::was_closed() const {
  uint64_t write = 0;
  std::istringstream number(mark(k_closed_mark).value_or(""));
  return number >> write && write >= state_->found_sequence;
}

Result<void> Database::unmark_closed() {
  return delete_mark(k_closed_mark);
}

std::optional<std::string> Database::mark(std::string_view name) const {
  std::string value;
  const auto status = state_->db->Get(read_options(), state_->marks, slice_of(name), &value);
  if (!status.ok()) return std::nullopt;
  return value;
}

Result<std::vector<std::pair<std::string, std::string>>> Database::marks(
    std::string_view prefix) const {
  std::vector<std::pair<std::string, std::string>> out;
  const std::unique_ptr<rocksdb::Iterator> at(
      state_->db->NewIterator(read_options(), state_->marks));
  for (at->Seek(slice_of(prefix)); at->Valid() && at->key().starts_with(slice_of(prefix));
       at->Next()) {
    out.emplace_back(at->key().ToString(), at->value().ToString());
  }
  OUTRIDER_TRY(result_of(at->status()));
  return out;
}

Result<RecordBytes> Database::read(const BlockId& id, Place place) const {
  auto* family = place == Place::pinned ? state_->pinned : state_->payload;
  try {
    auto value = std::make_shared<rocksdb::PinnableSlice>();
    OUTRIDER_TRY(result_of(state_->db->Get(read_options(), family, slice_of(id), value.get())));
    const auto bytes = bytes_of(*value);
    return RecordBytes(std::move(value), bytes);
  } catch (const std::bad_alloc&) {  // the size came from the disk
    return fail(ErrorCode::io, "no memory for a record");
  }
}

Result<void> Database::each_row(const std::function<void(const BlockId&, const Row&)>& row,
                                const std::function<void(std::string_view key)>& broken) const {
  // A row is written after its record. What claims a later number would stand in the way of the
  // write that gets it.
  const uint64_t newest = state_->db->GetLatestSequenceNumber();
  const std::unique_ptr<rocksdb::Iterator> at(
      state_->db->NewIterator(read_options(), state_->rows));
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    if (at->key().empty()) continue;  // gives the family a table
    const auto id = id_of(at->key());
    const auto decoded = id ? decode_row(*id, bytes_of(at->value())) : std::nullopt;
    if (decoded && decoded->sequence <= newest) {
      row(*id, *decoded);
    } else {
      broken({at->key().data(), at->key().size()});
    }
  }
  OUTRIDER_TRY(result_of(at->status()));
  const std::vector<std::string> bad = bad_tables_of(*state_->db, {"idx"});
  if (bad.empty()) return {};
  return fail(ErrorCode::corrupt, "a table, " + bad.front() + ", has a bad block");
}

Result<void> Database::delete_broken_row(std::string_view key) {
  rocksdb::WriteBatch out;
  OUTRIDER_TRY(result_of(out.Delete(state_->rows, slice_of(key))));
  OUTRIDER_TRY(result_of(out.Delete(state_->pinned, slice_of(key))));
  return result_of(state_->db->Write(rocksdb::WriteOptions(), &out));
}

Result<std::vector<BlockId>> Database::pinned_ids() const {
  std::vector<BlockId> out;
  const std::unique_ptr<rocksdb::Iterator> at(
      state_->db->NewIterator(read_options(), state_->pinned));
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    if (const auto id = id_of(at->key())) out.push_back(*id);
  }
  OUTRIDER_TRY(result_of(at->status()));
  return out;
}

std::vector<std::string> Database::deleted_files() const {
  const auto listed = [&] {
    std::vector<rocksdb::LiveFileMetaData> tables;
    state_->db->GetLiveFilesMetaData(&tables);
    std::vector<std::string> paths = list_paths(*state_->db);
    for (const auto& table : tables) {
      paths.push_back(table.directory + '/' + table.relative_filename);
    }
    return paths;
  };
  std::vector<std::string> deleted = listed();
  std::erase_if(deleted, [](const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0 || errno != ENOENT;
  });
  if (deleted.empty()) return deleted;
  const std::vector<std::string> now = listed();  // without what RocksDB itself deleted meanwhile
  std::erase_if(deleted, [&](const std::string& path) {
    return std::find(now.begin(), now.end(), path) == now.end();
  });
  std::transform(deleted.begin(), deleted.end(), deleted.begin(), DirectoryLock::with_names);
  return deleted;
}

std::string Database::moved_to(const std::string& directory) const {
  struct stat named {
  }, open{};
  const std::string path = state_->lock ? state_->lock->path() : "";
  if (path.empty() || ::stat(path.c_str(), &open) != 0) return {};
  const bool in_its_place = ::stat(directory.c_str(), &named) == 0 && named.st_dev == open.st_dev &&
                            named.st_ino == open.st_ino;
  if (in_its_place || open.st_nlink == 0) return {};  // without a link it was deleted
  return DirectoryLock::with_names(path);
}

bool Database::is_replaced() const {
  struct stat open {};
  const std::string path = state_->lock ? state_->lock->path() : "";
  if (!path.empty() && ::stat(path.c_str(), &open) == 0 && open.st_nlink == 0) return true;
  const auto current = current_of(*state_->db);
  return current && state_->current && *current != *state_->current;
}

std::vector<std::string> Database::bad_tables() const {
  return bad_tables_of(*state_->db, {rocksdb::kDefaultColumnFamilyName, "idx", "kvp"});
}

uint64_t Database::pinned_file_bytes() const {
  uint64_t files = 0, buffered = 0;
  state_->db->GetIntProperty(state_->pinned, rocksdb::DB::Properties::kTotalSstFilesSize, &files);
  state_->db->GetIntProperty(state_->pinned, rocksdb::DB::Properties::kCurSizeAllMemTables,
                             &buffered);
  return files + buffered;
}

Result<void> Database::compact_pinned() {
  rocksdb::CompactRangeOptions how;
  how.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
  return result_of(state_->db->CompactRange(how, state_->pinned, nullptr, nullptr));
}

uint64_t Database::payload_bytes_written() const {
  std::map<std::string, std::string> stats;
  if (!state_->db->GetMapProperty(state_->payload, rocksdb::DB::Properties::kCFStats, &stats)) {
    return 0;
  }
  const auto found = stats.find("compaction.Sum.WriteGB");
  return found == stats.end() ? 0
                              : static_cast<uint64_t>(std::stod(found->second) * double{1 << 30});
}

}  // namespace outrider::kvstore
