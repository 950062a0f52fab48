#include "kvstore/cold_writer.hpp"

#include <algorithm>

#include "base/system.hpp"
#include "kvstore/cold_open.hpp"
#include "kvstore/salvage_mark.hpp"

namespace outrider::kvstore {

ColdWriter::ColdWriter(StoreCore& core) : core_(core), thread_([this] { run(); }) {}

ColdWriter::~ColdWriter() {
  close();
}

// -- any thread ----------------------------------------------------------------------------------

ColdWriter::Taken ColdWriter::enqueue(Task task, uint64_t bytes, bool bounded) {
  const std::lock_guard lock(mutex_);
  if (closing_) return Taken::closing;
  // What is larger than the bound is not refused for ever.
  const bool full = queued_bytes_ != 0 && queued_bytes_ + bytes > core_.options.queue_bytes;
  if (bounded && full) return Taken::full;
  queue_.push_back({std::move(task), bytes});
  queued_bytes_ += bytes;
  wake_.notify_one();
  return Taken::yes;
}

void ColdWriter::put(std::vector<Block> blocks, const PutOptions& options) {
  std::vector<BlockId> known;
  for (Block& block : blocks) {
    const BlockId id = block.id;
    {
      const std::lock_guard lock(core_.mutex);
      if (core_.index.find(id) != nullptr || !core_.in_flight.insert(id).second) {
        ++core_.counters.skipped[Skip::duplicate];
        known.push_back(id);
        continue;
      }
    }
    const uint64_t bytes = encoded_bytes(block);
    auto shared = std::make_shared<Block>(std::move(block));
    const Taken taken = enqueue([this, shared, options] { store(*shared, options); }, bytes, true);
    if (taken != Taken::yes) {
      skip(id, taken == Taken::full ? Skip::queue_full : Skip::unavailable);
      refuse_pin(options);
    }
  }
  keep(std::move(known), options);
}

/// For as long as these options ask.
void ColdWriter::keep(std::vector<BlockId> ids, const PutOptions& options) {
  if (ids.empty()) return;
  if (options.pin) {
    return pin(std::move(ids), options.expires_at,
               [counter = options.pins_refused](PinSummary summary) {
                 if (counter) *counter += summary.refused;
               });
  }
  if (options.expires_at != 0) keep_until(std::move(ids), options.expires_at);
}

/// A change to that many ids.
void ColdWriter::change_later(Task task, size_t ids) {
  if (enqueue(std::move(task), ids * sizeof(BlockId), true) != Taken::yes) {
    core_.count_dropped_job();
  }
}

void ColdWriter::describe(const Digest256& ns, std::string text) {
  enqueue([this, ns, text] { descriptions_[short_of(ns)] = text; }, 0, false);
}

void ColdWriter::keep_until(std::vector<BlockId> ids, int64_t expires_at) {
  if (ids.empty()) return;
  const size_t count = ids.size();
  auto shared = std::make_shared<const std::vector<BlockId>>(std::move(ids));
  const auto keep = [this, shared, expires_at] {
    const std::lock_guard lock(core_.mutex);
    for (const BlockId& id : *shared) {
      const Row* row = core_.index.find(id);
      if (row == nullptr || later_of(row->expires_at, expires_at) == row->expires_at) continue;
      core_.index.set_expiry(id, expires_at);
      core_.used.insert(id);
    }
  };
  keep();
  const auto keep_all = [this, shared, expires_at, keep] {
    if (!can_write()) return core_.count_dropped_job();
    keep();
    const StoreCore::Ids wanted(shared->begin(), shared->end());
    for (Pending& one : pending_) {
      if (wanted.contains(one.id)) one.row.expires_at = later_of(one.row.expires_at, expires_at);
    }
    if (pending_.empty()) commit();
  };
  change_later(keep_all, count);
}

void ColdWriter::drop(std::vector<BlockId> ids) {
  auto on_their_way = drop_now(ids, [this](const BlockId& id, Place at) { forget(id, at); });
  core_.tell();
  if (on_their_way.empty()) return;
  const size_t count = on_their_way.size();
  const auto drop_rest = [this, rest = std::move(on_their_way)] {
    settle(rest);
    drop_now(rest, [this](const BlockId& id, Place at) { delete_row(id, at); });
    core_.tell();
  };
  change_later(drop_rest, count);
}

/// Erases and forgets in one step: whoever puts a block again comes after. Returns what may still
/// come.
std::vector<BlockId> ColdWriter::drop_now(
    std::span<const BlockId> ids, const std::function<void(const BlockId&, Place)>& forget_one) {
  std::vector<BlockId> on_their_way;
  const std::lock_guard lock(core_.mutex);
  for (const BlockId& id : ids) {
    if (const Row* row = core_.index.find(id)) {
      forget_one(id, row->place);
      core_.index.erase(id);
      ++core_.counters.removed[Removal::dropped];
      core_.note_removed({&id, 1});
    } else if (core_.in_flight.contains(id) || !core_.database) {
      on_their_way.push_back(id);  // rows of a database that opens are on theirs
    }
  }
  return on_their_way;
}

void ColdWriter::forget(const BlockId& id, Place place) {
  // Not bounded by itself: each comes from a row, and rows are.
  enqueue([this, id, place] { delete_row(id, place); }, 0, false);
}

void ColdWriter::drain() {
  auto done = std::make_shared<std::promise<void>>();
  auto reached = done->get_future();
  const Taken taken = enqueue(
      [this, done] {
        commit();
        done->set_value();
      },
      0, false);
  if (taken == Taken::yes) reached.wait();
  core_.wait_told();
}

bool ColdWriter::wait_open(Duration most) {
  auto done = std::make_shared<std::promise<void>>();
  auto reached = done->get_future();
  const Taken taken = enqueue([done] { done->set_value(); }, 0, false);
  return taken == Taken::yes && reached.wait_for(most) == std::future_status::ready;
}

void ColdWriter::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_one();
  }
  lift_write_limit();
  // It may take longer than whoever stops may wait.
  if (is_salvaging_) SalvageMark::forgive(database_directory(core_.options.directory));
  if (thread_.joinable()) thread_.join();
}

void ColdWriter::lift_write_limit() {
  std::shared_ptr<Database> database;
  {
    const std::lock_guard lock(core_.mutex);
    is_limited_ = false;
    database = core_.database;
  }
  if (database) database->lift_write_limit();
}

uint64_t ColdWriter::queued_bytes() const {
  const std::lock_guard lock(mutex_);
  return queued_bytes_;
}

bool ColdWriter::is_closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

// -- the thread ----------------------------------------------------------------------------------

void ColdWriter::run() {
  name_this_thread("store writer");
  open();
  opening_ = false;
  while (run_one()) commit_if_old();
  commit();
  look_for_files(true);
  if (database_ && !write_failed_) {
    if (!database_->mark_closed()) write_failed_ = true;
  }
  retire(false);
  const std::lock_guard lock(core_.mutex);
  core_.outage = Outage::closed;
}

/// False when nothing is left to do and none will come.
bool ColdWriter::run_one() {
  Queued next;
  {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return closing_ || !queue_.empty(); };
    const bool owes = !pending_.empty() || !deletions_.empty();
    const uint32_t ms = owes ? core_.options.flush_age_ms : core_.options.use_age_ms;
    wake_.wait_for(lock, std::chrono::milliseconds(ms), ready);
    if (queue_.empty()) return !closing_;
    next = std::move(queue_.front());
    queue_.pop_front();
  }
  next.task();
  next.task = nullptr;  // frees the block before its bytes count as free
  const std::lock_guard lock(mutex_);
  queued_bytes_ -= next.bytes;
  return true;
}

void ColdWriter::skip(const BlockId& id, Skip reason) {
  const std::lock_guard lock(core_.mutex);
  ++core_.counters.skipped[reason];
  core_.in_flight.erase(id);
}

}  // namespace outrider::kvstore
