#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "kvstore/index_row.hpp"

/// The one place that knows RocksDB. Families: `default` (names, marks), `idx` (rows), `kvf`
/// (payload, FIFO: a hard byte cap, written without WAL), `kvp` (pinned payload, with WAL).
namespace outrider::kvstore {

struct DatabaseOptions {
  uint64_t payload_cap_bytes = 0;       ///< of the FIFO family's files
  uint64_t payload_buffer_bytes = 0;    ///< of one flush
  uint64_t pinned_buffer_bytes = 0;     ///< of one memtable of the pinned family
  uint64_t write_bytes_per_second = 0;  ///< 0: no limit
  bool direct_io = true;                ///< where the file system has it
  bool compacts = true;                 ///< by itself
  bool read_only = false;               ///< for a look at a directory that a server may hold
};

/// Why a directory does not open.
enum class OpenFailure : uint8_t {
  damaged,    ///< its content is wrong: move it aside
  read_only,  ///< no right to write: its content may be fine
  no_space,   ///< likewise
  in_use,     ///< by another process, or elsewhere in this one: likewise
  other,      ///< out of memory or descriptors, not a directory, …: likewise
};

struct OpenError {
  OpenFailure why = OpenFailure::other;
  std::string message;
  std::string detail;  ///< what RocksDB said, for who looks for the cause; may be empty

  std::string text() const { return detail.empty() ? message : message + " (" + detail + ")"; }
};

/// Changes that happen together or not at all, in this order.
class RowBatch {
 public:
  void put_row(const BlockId& id, const Row& row) {
    changes_.push_back({Kind::put_row, id, row, {}});
  }
  void delete_row(const BlockId& id) { changes_.push_back({Kind::delete_row, id, {}, {}}); }
  void put_pinned(const BlockId& id, RecordBytes record) {
    changes_.push_back({Kind::put_pinned, id, {}, std::move(record)});
  }
  void delete_pinned(const BlockId& id) { changes_.push_back({Kind::delete_pinned, id, {}, {}}); }
  void append(const RowBatch& later) {
    changes_.insert(changes_.end(), later.changes_.begin(), later.changes_.end());
  }
  bool empty() const { return changes_.empty(); }
  using Ids = std::unordered_set<BlockId, BlockIdHash>;
  Ids written_rows() const { return ids_of(Kind::put_row); }
  Ids deleted_rows() const { return ids_of(Kind::delete_row); }

 private:
  friend class Database;
  enum class Kind : uint8_t { put_row, delete_row, put_pinned, delete_pinned };
  struct Change {
    Kind kind;
    BlockId id;
    Row row;
    RecordBytes record;
  };
  Ids ids_of(Kind kind) const;
  std::vector<Change> changes_;
};

/// What the payload family's files hold.
struct PayloadFiles {
  uint64_t cap_bytes = 0;
  uint64_t bytes = 0;
  uint32_t files = 0;
  uint64_t oldest_sequence = 0;  ///< what was written before it is gone
  /// What was written before it falls out before a quarter of the cap is written, or two flushes,
  uint64_t quarter_sequence = 0;
  /// and before a sixteenth is, or one flush.
  uint64_t next_sequence = 0;
};

/// Writes that one file of the payload family holds, both ends included.
struct SequenceRange {
  uint64_t first = 0;
  uint64_t last = 0;
};

/// An open directory. Reads from any thread; everything that writes from one thread. Closes
/// (flushes and waits) when destroyed. Errors: not_found, corrupt, io, and too_large for a full
/// disk.
class Database {
 public:
  struct Opened {
    std::unique_ptr<Database> database;  ///< null: see error
    OpenError error;
  };
  static Opened open(const std::string& directory, const DatabaseOptions& options);
  ~Database();

  /// Writes into the payload buffer. Durable after the next flush that succeeds. Returns the
  /// sequence number, which grows with each write.
  Result<uint64_t> put_payload(const BlockId& id, std::span<const std::byte> record);
  Result<void> flush_payload();
  Result<PayloadFiles> payload_files() const;
  /// Of each payload file, the oldest first: a record that was written within none is lost.
  std::vector<SequenceRange> payload_sequences() const;
  /// From now on writes take what the disk gives. From any thread.
  void lift_write_limit();
  /// Drops FIFO files beyond the cap now rather than in the background.
  void trim_payload();

  /// `records`: how many there are then, with what it writes; none: as many as before.
  Result<void> write(const RowBatch& batch, std::optional<uint64_t> records = std::nullopt);
  using Rows = std::vector<std::pair<BlockId, Row>>;
  /// Of a salvage that kept so many, before it has let go of other rows: how many fewer they are
  /// than the last write counted. None: no write did, or its word is lost, and what is left of it
  /// is older than something that is here.
  std::optional<uint64_t> lost_records(uint64_t kept) const;
  Result<void> set_mark(std::string_view name, std::string_view value);
  Result<void> delete_mark(std::string_view name);
  /// The last write of who closes it in order.
  Result<void> mark_closed();
  /// Whether the last write before this opening was that.
  bool was_closed() const;
  /// From here on it was not.
  Result<void> unmark_closed();
  std::optional<std::string> mark(std::string_view name) const;
  /// Marks whose name begins with `prefix`.
  Result<std::vector<std::pair<std::string, std::string>>> marks(std::string_view prefix) const;

  Result<RecordBytes> read(const BlockId& id, Place place) const;
  /// Every row; `broken` is called for what is none: it proves nothing, or names a write that has
  /// not been yet. Errors end the walk; corrupt, too, where a table of rows has a bad block, for
  /// RocksDB leaves out some without a word.
  Result<void> each_row(const std::function<void(const BlockId&, const Row&)>& row,
                        const std::function<void(std::string_view key)>& broken) const;
  /// Deletes an index entry by its raw key, which need not be an id, and what is pinned of it.
  Result<void> delete_broken_row(std::string_view key);
  /// Ids in the pinned family, whether a row names them or not.
  Result<std::vector<BlockId>> pinned_ids() const;

  /// Files that it has open and that another program has deleted: they can be read until it
  /// closes, and are lost then.
  std::vector<std::string> deleted_files() const;
  /// Where another program moved its directory to, which it goes on in; empty: it is in its place.
  std::string moved_to(const std::string& directory) const;
  /// Whether another program deleted it, or put other files in the place of its own: nothing that
  /// is written there can be opened again.
  bool is_replaced() const;
  /// Names of tables, but for the payload's, with a block that is not what its check sum says,
  /// under a living record or not. Reads them all.
  std::vector<std::string> bad_tables() const;
  uint64_t pinned_file_bytes() const;
  Result<void> compact_pinned();
  /// Bytes that flushes and compactions of the payload family wrote since it was opened.
  uint64_t payload_bytes_written() const;
  /// Makes a database that does not open anew from those of its tables and logs that can be read,
  /// all of which it reads, and opens it; it takes as much room again as its logs have. Of the
  /// others, and of those that may have the same writes as another, it keeps what can be read and
  /// is in no other; payload as far as the disk has room to write it again. What rows say must be
  /// looked at again: some may be of another time. Errors: unavailable (in use by another process)
  /// and too_large (no room) leave it as it was. Any other, a kill too, and whatever ends it before
  /// it is settled, leaves what opens as damaged until a salvage comes to its end.
  static Result<std::unique_ptr<Database>> salvage(const std::string& directory,
                                                   const DatabaseOptions& options);
  /// It is open and its content was looked at: an end of the process from here on is not counted
  /// as one that the directory was the cause of, and what a salvage left out is deleted.
  Result<void> settle();
  static bool salvage_was_cut_off(const std::string& directory);
  static uint32_t salvage_tries(const std::string& directory);  ///< none of which came to its end
  /// Fails (unavailable) where another process, or this one, holds a directory or salvages it.
  static Result<void> check_free(const std::string& directory);
  /// Whether a file of a megabyte can be written in a directory now, and if not, why.
  static std::optional<OpenError> cannot_write(const std::string& directory);

 private:
  struct State;
  explicit Database(std::unique_ptr<State> state);
  static Opened open_anyway(const std::string& directory, const DatabaseOptions& options);
  static Result<std::unique_ptr<Database>> make_anew(const std::string& directory,
                                                     const DatabaseOptions& options);
  Result<void> write_lost(const std::string& tables);
  Result<void> write_lost_rows(const std::string& tables);
  Result<void> write_lost_payload(const std::string& tables);
  std::unique_ptr<State> state_;
};

}  // namespace outrider::kvstore
