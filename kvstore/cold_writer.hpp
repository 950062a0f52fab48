#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kvstore/cold_store.hpp"
#include "kvstore/store_core.hpp"

namespace outrider::kvstore {

struct Opening;
struct OpenedStore;

/// The only thread that changes the database: opens it, stores blocks, publishes them once they
/// are durable, moves and removes records, closes it. Its queue is bounded; what does not fit is
/// dropped and counted. The public functions never wait, but for the last three.
class ColdWriter {
 public:
  explicit ColdWriter(StoreCore& core);
  ~ColdWriter();

  void put(std::vector<Block> blocks, const PutOptions& options);
  /// A record that was just read and verified, and is about to fall out of the FIFO.
  void rewrite(const BlockId& id, RecordBytes record);
  void pin(std::vector<BlockId> ids, int64_t expires_at, std::function<void(PinSummary)> done);
  void unpin(std::vector<BlockId> ids, std::function<void(PinSummary)> done);
  void keep_until(std::vector<BlockId> ids, int64_t expires_at);
  void drop(std::vector<BlockId> ids);
  void drop_all(std::optional<uint64_t> tenant, std::function<void(Result<uint64_t>)> done);
  void describe(const Digest256& ns, std::string text);
  /// Deletes the row (already erased from the index) and what is pinned of it.
  void forget(const BlockId& id, Place place);
  /// Writes take what the disk gives from now on.
  void lift_write_limit();
  uint64_t queued_bytes() const;
  bool wait_open(Duration most);
  void drain();
  void close();

 private:
  using Task = std::function<void()>;
  struct Queued {
    Task task;
    uint64_t bytes = 0;
  };
  /// A record in the payload buffer that waits for its flush.
  struct Pending {
    BlockId id{};
    Row row;
    Row before;         ///< of what moves within the store: still this, or the move is off
    bool fresh = true;  ///< reserved room, and is not in the index
  };

  StoreCore& core_;

  mutable std::mutex mutex_;  // queue, its bytes and closing
  std::condition_variable wake_;
  std::deque<Queued> queue_;
  uint64_t queued_bytes_ = 0;
  bool closing_ = false;
  std::atomic<bool> opening_ = true;  // the first time
  std::atomic<bool> is_salvaging_ = false;
  bool is_limited_ = true;  // guarded by the core's mutex: what is written

  // The thread's own.
  std::shared_ptr<Database> database_;
  std::future<void> database_closed_;
  bool write_failed_ = false;
  uint64_t payload_written_bytes_ = 0;   // of this database, as counted so far
  std::string last_open_;                // the id of the store that was
  std::string known_damage_;             // what a write found; empty: none
  std::optional<uint64_t> file_system_;  // that the directory was open on
  TimePoint retry_at_{0};
  std::vector<Pending> pending_;
  TimePoint oldest_pending_{0};
  TimePoint uses_written_{0};
  TimePoint files_looked_at_{0};
  std::string moved_to_;  // by another program, as far as was told
  RowBatch deletions_;    // go with the next write, before what it adds
  std::unordered_map<BlockId, Row, BlockIdHash> unwritten_;  // uses that the disk refused
  std::vector<uint64_t> named_tenants_, named_namespaces_;
  std::map<uint64_t, std::string> descriptions_;  // of namespaces
  BlockId refused_{};                             // the last block that was, and why
  Skip refused_why_ = Skip::orphan;
  std::thread thread_;

  enum class Taken : uint8_t { yes, full, closing };
  Taken enqueue(Task task, uint64_t bytes, bool bounded);
  void change_later(Task task, size_t ids);
  void run();
  bool run_one();

  Opening opening();
  void open();
  void add_unwritten_uses(std::vector<std::pair<BlockId, Row>>& rows);
  void learn_tenant_names();
  void log_opened(const OpenedStore& opened, bool again);
  void fill_index(std::vector<std::pair<BlockId, Row>> rows);
  void retire(bool tell);
  bool can_write();
  bool is_closing() const;
  TimePoint next_try() const;
  void begin_outage(const Error& error);

  void keep(std::vector<BlockId> ids, const PutOptions& options);
  std::vector<BlockId> drop_now(std::span<const BlockId> ids,
                                const std::function<void(const BlockId&, Place)>& forget_one);
  Result<uint64_t> drop_all_now(std::optional<uint64_t> tenant);
  Error outage_error() const;
  void delete_row(const BlockId& id, Place place);
  bool write(const RowBatch& added);
  uint64_t records_with(const RowBatch& added) const;

  void store(const Block& block, const PutOptions& options);
  bool continues_what_is_here(const Block& block);
  std::optional<Skip> make_room(const BlockId& id, const Row& row);
  Room reserve(const BlockId& id, const Row& row);
  void refuse(const Block& block, const PutOptions& options, Skip why);
  void store_pinned(const BlockId& id, const Row& row, std::vector<std::byte> record);
  void name_in_marks(const Block& block, const std::string& tenant);
  void append(const BlockId& id, const Row& row, std::span<const std::byte> record, Pending how);
  void add_pending(const BlockId& id, const Row& row, std::span<const std::byte> record,
                   Pending how);

  /// A record that is here, and on its way to another place in the FIFO.
  struct Moving {
    BlockId id{};
    Row row;
  };
  std::vector<Moving> begin_moves(const std::vector<BlockId>& ids);  // under the mutex
  void move_to_end(const Moving& one);
  void spare_others(const BlockId& id, const Row& coming);
  bool clear_oldest_file(const Row& coming);
  bool may_come_back(const Row& row);
  using ChangePin = std::function<bool(const BlockId&, PinSummary&)>;
  void change_pins(std::vector<BlockId> ids, ChangePin one, std::function<void(PinSummary)> done);
  bool pin_one(const BlockId& id, int64_t expires_at, PinSummary& summary);
  Result<RecordBytes> record_to_move(const BlockId& id, const Row& row, PinSummary& summary);
  void unpin_one(const BlockId& id, PinSummary& summary);
  bool pinned_room(const Row& row);

  void commit();
  void commit_if_full();
  void commit_if_old();
  bool uses_are_old() const;
  StoreCore::Ids add_used_rows(RowBatch& batch);
  void apply_moves(std::vector<Pending>& pending);
  void publish(const std::vector<Pending>& pending);
  void give_up(const std::vector<Pending>& pending);
  void look_for_files(bool is_due);
  void sweep();
  void sweep_expired();
  uint64_t pending_bytes() const;
  void settle(std::span<const BlockId> ids);
  void skip(const BlockId& id, Skip reason);
  void count_refused_pins(uint64_t blocks);
  void refuse_pin(const PutOptions& options);
};

}  // namespace outrider::kvstore
