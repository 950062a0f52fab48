// The writer's work on records: storing, and publishing what became durable.

#include <algorithm>

#include "kvstore/cold_open.hpp"
#include "kvstore/cold_writer.hpp"

namespace outrider::kvstore {
namespace {

Skip reason_of(Room room) {
  if (room == Room::duplicate) return Skip::duplicate;
  if (room == Room::dead_bytes) return Skip::dead_bytes;
  return room == Room::index_full ? Skip::index_full : Skip::over_quota;
}

}  // namespace

void ColdWriter::store(const Block& block, const PutOptions& options) {
  if (!can_write()) {
    refuse_pin(options);
    return skip(block.id, Skip::unavailable);
  }
  sweep_expired();
  auto record = encode(block);
  if (!record) return refuse(block, options, Skip::invalid);
  Row row;
  row.ns = short_of(block.ns);
  row.tenant = tenant_number(options.tenant);
  row.parent = short_of(block.parent);
  row.expires_at = options.expires_at;
  row.used_at = core_.now_s();
  row.bytes = static_cast<uint32_t>(record->size());
  row.tokens = static_cast<uint32_t>(block.tokens.size());
  row.depth = block.depth;
  const bool pin = options.pin && pinned_room(row);
  row.place = pin ? Place::pinned : Place::fifo;
  // A compaction of pinned records wrote: the disk may have refused it.
  if (!can_write()) return refuse(block, options, Skip::write_failed);
  if (!continues_what_is_here(block)) {
    // Of a chain that is cut the rest counts as what was cut off.
    const bool cut_off = block.depth != 0 && block.parent == refused_;
    return refuse(block, options, cut_off ? refused_why_ : Skip::orphan);
  }
  const auto no_room = make_room(block.id, row);
  if (no_room == Skip::duplicate) keep({block.id}, options);
  if (no_room) return refuse(block, options, *no_room);
  if (!pin) refuse_pin(options);
  name_in_marks(block, options.tenant);
  if (pin) {
    store_pinned(block.id, row, *std::move(record));
  } else {
    append(block.id, row, *record, {.fresh = true});
    spare_others(block.id, row);
  }
}

/// None: it has room. What waits for its flush cannot make any before.
std::optional<Skip> ColdWriter::make_room(const BlockId& id, const Row& row) {
  Room room = reserve(id, row);
  const auto same_tenant = [&](const Pending& one) { return one.row.tenant == row.tenant; };
  if (room == Room::over_quota && std::any_of(pending_.begin(), pending_.end(), same_tenant)) {
    commit();
    if (!can_write()) return Skip::write_failed;
    room = reserve(id, row);
  }
  if (room == Room::dead_bytes && clear_oldest_file(row)) room = reserve(id, row);
  if (!can_write()) return Skip::write_failed;
  if (room == Room::granted) return std::nullopt;
  return reason_of(room);
}

void ColdWriter::refuse(const Block& block, const PutOptions& options, Skip why) {
  refused_ = block.id;
  refused_why_ = why;
  if (why == Skip::over_quota) {
    const std::lock_guard lock(core_.mutex);
    core_.index.count_over_quota(tenant_number(options.tenant));
  }
  if (why != Skip::duplicate) refuse_pin(options);
  skip(block.id, why);
}

/// A block behind one that did not come in could never be matched.
bool ColdWriter::continues_what_is_here(const Block& block) {
  if (block.depth == 0) return true;
  const auto is_parent = [&](const Pending& one) { return one.id == block.parent; };
  if (std::any_of(pending_.begin(), pending_.end(), is_parent)) return true;
  const std::lock_guard lock(core_.mutex);
  return core_.index.find(block.parent) != nullptr;
}

Room ColdWriter::reserve(const BlockId& id, const Row& row) {
  std::vector<BlockId> evicted;
  Room room;
  {
    const std::lock_guard lock(core_.mutex);
    room = core_.index.reserve(id, row, evicted);
    core_.counters.removed[Removal::quota] += evicted.size();
    core_.note_removed(evicted);
  }
  for (const BlockId& gone : evicted) deletions_.delete_row(gone);  // pinned ones are never evicted
  core_.tell();
  return room;
}

/// Names of tenants and namespaces, for people who look into the directory.
void ColdWriter::name_in_marks(const Block& block, const std::string& tenant) {
  const auto once = [](std::vector<uint64_t>& named, uint64_t number) {
    const bool known = std::find(named.begin(), named.end(), number) != named.end();
    if (known || named.size() == limits::kv_tenant_names_max) return false;
    named.push_back(number);
    return true;
  };
  const uint64_t number = tenant_number(tenant);
  if (once(named_tenants_, number)) {
    const auto set = database_->set_mark(tenant_mark(number), tenant);
    if (!set) return begin_outage(set.error());
    const std::lock_guard lock(core_.mutex);
    if (core_.tenant_names.size() < limits::kv_tenant_names_max) {
      core_.tenant_names.emplace(number, tenant);
    }
  }
  if (const uint64_t ns = short_of(block.ns); once(named_namespaces_, ns)) {
    const auto set =
        database_->set_mark(namespace_mark(ns), to_hex(block.ns) + ' ' + descriptions_[ns]);
    if (!set) begin_outage(set.error());
  }
}

/// Into the payload buffer; published by the commit that flushes it.
void ColdWriter::append(const BlockId& id, const Row& row, std::span<const std::byte> record,
                        Pending how) {
  add_pending(id, row, record, std::move(how));
  commit_if_full();
}

void ColdWriter::add_pending(const BlockId& id, const Row& row, std::span<const std::byte> record,
                             Pending how) {
  const auto sequence = database_->put_payload(id, record);
  how.id = id;
  how.row = how.before = row;
  if (!sequence) {
    give_up({how});
    return begin_outage(sequence.error());
  }
  how.row.sequence = *sequence;
  how.row.place = Place::fifo;
  if (pending_.empty()) oldest_pending_ = core_.surroundings.clock.now();
  pending_.push_back(std::move(how));
}

void ColdWriter::commit_if_full() {
  if (pending_bytes() >= core_.options.buffer_bytes) commit();
}

/// Writes rows after the deletions that wait, so that changes of one id stay in order.
bool ColdWriter::write(const RowBatch& added) {
  RowBatch batch = deletions_;
  batch.append(added);
  if (batch.empty()) return true;
  if (const auto written = database_->write(batch, records_with(added)); !written) {
    begin_outage(written.error());
    return false;
  }
  deletions_ = {};
  return true;
}

/// What is erased from the index, but not deleted yet, counts as gone.
uint64_t ColdWriter::records_with(const RowBatch& added) const {
  const RowBatch::Ids written = added.written_rows();
  const std::lock_guard lock(core_.mutex);
  const auto is_new = [this](const BlockId& id) { return core_.index.find(id) == nullptr; };
  return core_.index.rows() +
         static_cast<uint64_t>(std::count_if(written.begin(), written.end(), is_new));
}

void ColdWriter::delete_row(const BlockId& id, Place place) {
  deletions_.delete_row(id);
  if (place == Place::pinned) deletions_.delete_pinned(id);
}

uint64_t ColdWriter::pending_bytes() const {
  uint64_t sum = 0;
  for (const Pending& one : pending_) sum += one.row.bytes;
  return sum;
}

/// RocksDB does not notice: it has its files open.
void ColdWriter::look_for_files(bool is_due) {
  const TimePoint now = core_.surroundings.clock.now();
  is_due = is_due || now - files_looked_at_ >= std::chrono::milliseconds(core_.options.use_age_ms);
  if (!database_ || !is_due) return;
  files_looked_at_ = now;
  const std::vector<std::string> deleted = database_->deleted_files();
  uint64_t known = 0;
  {
    const std::lock_guard lock(core_.mutex);
    known = std::exchange(core_.deleted_files, deleted.size());
  }
  if (deleted.size() > known) core_.log.deleted(deleted.front(), deleted.size());
  const std::string path = database_directory(core_.options.directory);
  const std::string to = database_->moved_to(path);
  if (!to.empty() && to != moved_to_) core_.log.moved(path, to);
  moved_to_ = to;
  // What is written there is lost: the next write makes a new one.
  if (to.empty() && !write_failed_ && database_->is_replaced()) {
    begin_outage(fail(ErrorCode::io, path + ": another program deleted or replaced it"));
  }
}

void ColdWriter::commit_if_old() {
  look_for_files(false);
  if (pending_.empty()) {
    sweep_expired();
    if (!deletions_.empty() || uses_are_old()) commit();
    return;
  }
  const Duration age = core_.surroundings.clock.now() - oldest_pending_;
  if (age < std::chrono::milliseconds(core_.options.flush_age_ms)) return;
  // Many small files would cost each look-up: then only full buffers are flushed.
  const bool few = core_.files.files < limits::kv_payload_files_max;
  if (few || pending_bytes() >= core_.options.buffer_bytes / 2) commit();
}

bool ColdWriter::uses_are_old() const {
  const Duration age = core_.surroundings.clock.now() - uses_written_;
  if (age < std::chrono::milliseconds(core_.options.use_age_ms)) return false;
  const std::lock_guard lock(core_.mutex);
  return !core_.used.empty();
}

/// Flushes, then writes the rows of what is durable now, then tells.
void ColdWriter::commit() {
  if (!can_write()) return give_up(std::exchange(pending_, {}));
  std::vector<Pending> pending = std::exchange(pending_, {});
  if (!pending.empty()) {
    if (const auto flushed = database_->flush_payload(); !flushed) {
      give_up(pending);
      return begin_outage(flushed.error());
    }
    apply_moves(pending);
  }
  sweep();
  RowBatch batch;
  for (const Pending& one : pending) {
    batch.put_row(one.id, one.row);
    if (one.before.place == Place::pinned && !one.fresh) batch.delete_pinned(one.id);
  }
  StoreCore::Ids used = add_used_rows(batch);
  if (write(batch)) return publish(pending);
  give_up(pending);
  const std::lock_guard lock(core_.mutex);
  core_.used.merge(used);
}

/// Uses and times to live that only memory knows so far.
StoreCore::Ids ColdWriter::add_used_rows(RowBatch& batch) {
  uses_written_ = core_.surroundings.clock.now();
  const std::lock_guard lock(core_.mutex);
  StoreCore::Ids used = std::exchange(core_.used, {});
  for (const BlockId& id : used) {
    if (const Row* row = core_.index.find(id)) batch.put_row(id, *row);
  }
  return used;
}

void ColdWriter::publish(const std::vector<Pending>& pending) {
  if (pending.empty()) return;
  std::vector<BlockId> fresh;
  {
    const std::lock_guard lock(core_.mutex);
    ++core_.counters.flushes;
    for (const Pending& one : pending) {
      if (!one.fresh) {
        // Erased by a reader since: its row was written again.
        if (core_.index.find(one.id) == nullptr) deletions_.delete_row(one.id);
        continue;
      }
      core_.in_flight.erase(one.id);
      core_.index.release(one.id);
      if (!core_.index.insert(one.id, one.row)) {
        deletions_.delete_row(one.id);
        ++core_.counters.skipped[Skip::index_full];
        continue;
      }
      fresh.push_back(one.id);
      ++core_.counters.stored_blocks;
      core_.counters.stored_bytes += one.row.bytes;
    }
    core_.note_published(fresh);
  }
  core_.tell();
}

void ColdWriter::give_up(const std::vector<Pending>& pending) {
  const std::lock_guard lock(core_.mutex);
  for (const Pending& one : pending) {
    core_.in_flight.erase(one.id);
    if (!one.fresh) continue;
    core_.index.release(one.id);
    ++core_.counters.skipped[Skip::write_failed];
    core_.counters.refused_pins += one.row.place == Place::pinned ? 1 : 0;
  }
}

/// What expired must not stand in the way of what comes.
void ColdWriter::sweep_expired() {
  {
    const std::lock_guard lock(core_.mutex);
    if (!core_.index.any_expired(core_.now_s())) return;
  }
  if (!can_write()) return;
  sweep();
  write({});  // what is deleted only on paper holds room in the files
}

/// Lets go of rows whose file has left the FIFO and of those that expired.
void ColdWriter::sweep() {
  auto files = database_->payload_files();
  if (!files) return;
  if (files->bytes > files->cap_bytes) {
    database_->trim_payload();
    files = database_->payload_files();
    if (!files) return;
  }
  const uint64_t written = std::max(payload_written_bytes_, database_->payload_bytes_written());
  std::vector<BlockId> aged;
  std::vector<std::pair<BlockId, Place>> expired;
  {
    const std::lock_guard lock(core_.mutex);
    core_.note_files(*files);
    core_.counters.payload_written_bytes +=
        written - std::exchange(payload_written_bytes_, written);
    core_.index.age_out(files->files == 0 ? UINT64_MAX : files->oldest_sequence, aged);
    core_.index.expire(core_.now_s(), expired);
    core_.counters.removed[Removal::aged_out] += aged.size();
    core_.counters.removed[Removal::expired] += expired.size();
    core_.note_removed(aged);
    for (const auto& [id, place] : expired) core_.note_removed({&id, 1});
  }
  for (const BlockId& id : aged) deletions_.delete_row(id);
  for (const auto& [id, place] : expired) delete_row(id, place);
  core_.tell();
}

}  // namespace outrider::kvstore
