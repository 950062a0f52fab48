// The writer's work on records: storing, pinning, and publishing what became durable.

#include <algorithm>
#include <charconv>

#include "kvstore/cold_open.hpp"
#include "kvstore/cold_writer.hpp"

namespace outrider::kvstore {
namespace {

std::string hex_of(uint64_t value) {
  char text[17] = {};
  std::to_chars(text, text + 16, value, 16);
  return text;
}

RecordBytes owned(std::vector<std::byte> bytes) {
  auto shared = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> view(*shared);
  return {std::move(shared), view};
}

}  // namespace

void ColdWriter::store(const Block& block, const PutOptions& options) {
  if (!can_write()) return skip(block.id, Skip::unavailable);
  auto record = encode(block);
  if (!record) return skip(block.id, Skip::invalid);
  Row row;
  row.ns = short_of(block.ns);
  row.tenant = tenant_number(options.tenant);
  row.parent = short_of(block.parent);
  row.expires_at = options.expires_at;
  row.used_at = core_.now_s();
  row.bytes = static_cast<uint32_t>(record->size());
  row.tokens = static_cast<uint32_t>(block.tokens.size());
  row.depth = block.depth;
  row.place = options.pin ? Place::pinned : Place::fifo;
  if (options.pin && !pinned_room(row.bytes)) return skip(block.id, Skip::pinned_full);
  Room room = reserve(block.id, row);
  if (room == Room::over_quota && !pending_.empty()) {
    commit();  // what waits for its flush cannot make room before
    if (!can_write()) return skip(block.id, Skip::unavailable);
    room = reserve(block.id, row);
  }
  if (room == Room::duplicate) return skip(block.id, Skip::duplicate);
  if (room == Room::over_quota) return skip(block.id, Skip::over_quota);
  if (room == Room::index_full) return skip(block.id, Skip::index_full);
  name_in_marks(block, options.tenant);
  if (options.pin) {
    store_pinned(block.id, row, *std::move(record));
  } else {
    append(block.id, row, *record, {.fresh = true});
  }
}

Room ColdWriter::reserve(const BlockId& id, const Row& row) {
  std::vector<BlockId> evicted;
  Room room;
  {
    const std::lock_guard lock(core_.mutex);
    room = core_.index.reserve(id, row.tenant, row.bytes, evicted);
    core_.counters.removed[Removal::quota] += evicted.size();
  }
  for (const BlockId& gone : evicted) changes_.delete_row(gone);  // pinned ones are never evicted
  core_.removed(evicted);
  return room;
}

/// Names of tenants and namespaces, for people who look into the directory.
void ColdWriter::name_in_marks(const Block& block, const std::string& tenant) {
  constexpr size_t k_names_max = 4096;
  const auto once = [](std::vector<uint64_t>& named, uint64_t number) {
    const bool known = std::find(named.begin(), named.end(), number) != named.end();
    if (!known && named.size() < k_names_max) named.push_back(number);
    return !known && named.size() < k_names_max;
  };
  const uint64_t number = tenant_number(tenant);
  if (once(named_tenants_, number)) {
    const auto set = database_->set_mark(k_tenant_marks + hex_of(number), tenant);
    if (!set) return begin_outage(set.error());
  }
  if (once(named_namespaces_, short_of(block.ns))) {
    const auto set =
        database_->set_mark(k_namespace_marks + hex_of(short_of(block.ns)), to_hex(block.ns));
    if (!set) begin_outage(set.error());
  }
}

/// Into the payload buffer; published by the commit that flushes it.
void ColdWriter::append(const BlockId& id, Row row, std::span<const std::byte> record,
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
  if (pending_bytes() >= core_.options.buffer_bytes) commit();
}

void ColdWriter::store_pinned(const BlockId& id, const Row& row, std::vector<std::byte> record) {
  RowBatch batch;
  batch.put_pinned(id, owned(std::move(record)));
  batch.put_row(id, row);
  const auto written = database_->write(batch);
  {
    const std::lock_guard lock(core_.mutex);
    core_.index.release(row.tenant, row.bytes);
    core_.in_flight.erase(id);
    if (written) {
      core_.index.insert(id, row);
      ++core_.counters.stored_blocks;
      core_.counters.stored_bytes += row.bytes;
    } else {
      ++core_.counters.skipped[Skip::write_failed];
    }
  }
  if (!written) return begin_outage(written.error());
  core_.published({&id, 1});
}

/// Live records have half of the share, files of live and dead ones too: compaction needs as much
/// again for a moment.
bool ColdWriter::pinned_room(uint64_t bytes) {
  const uint64_t room = shares_of(core_.options, 0).pinned_bytes;
  {
    const std::lock_guard lock(core_.mutex);
    if (core_.index.pinned_bytes() + bytes > room) return false;
  }
  if (database_->pinned_file_bytes() + bytes <= room) return true;
  if (const auto compacted = database_->compact_pinned(); !compacted) {
    begin_outage(compacted.error());
    return false;
  }
  return database_->pinned_file_bytes() + bytes <= room;
}

/// Calls one(id, summary) for each id on the writer's thread, until it says false.
void ColdWriter::change_pins(std::vector<BlockId> ids, ChangePin one,
                             std::function<void(PinSummary)> done) {
  const uint64_t bytes = ids.size() * sizeof(BlockId);
  auto shared = std::make_shared<std::vector<BlockId>>(std::move(ids));
  const Taken taken = enqueue(
      [this, shared, one = std::move(one), done] {
        PinSummary summary;
        settle(*shared);
        for (const BlockId& id : *shared) {
          if (!one(id, summary)) break;
        }
        summary.refused = static_cast<uint32_t>(shared->size()) - summary.changed - summary.absent;
        if (done) done(summary);
      },
      bytes, true);
  if (taken == Taken::yes) return;
  {
    const std::lock_guard lock(core_.mutex);
    ++core_.counters.dropped_jobs;
  }
  if (done) done({0, 0, static_cast<uint32_t>(shared->size())});
}

void ColdWriter::pin(std::vector<BlockId> ids, int64_t expires_at,
                     std::function<void(PinSummary)> done) {
  const auto one = [this, expires_at](const BlockId& id, PinSummary& summary) {
    return pin_one(id, expires_at, summary);
  };
  change_pins(std::move(ids), one, std::move(done));
}

/// Commits if one of these is on its way.
void ColdWriter::settle(std::span<const BlockId> ids) {
  for (const Pending& one : pending_) {
    if (std::find(ids.begin(), ids.end(), one.id) != ids.end()) return commit();
  }
}

/// False if no further one can be pinned either.
bool ColdWriter::pin_one(const BlockId& id, int64_t expires_at, PinSummary& summary) {
  if (!can_write()) return false;
  Row row;
  {
    const std::lock_guard lock(core_.mutex);
    const Row* now = core_.index.find(id);
    if (now == nullptr) {
      ++summary.absent;
      return true;
    }
    core_.index.set_expiry(id, expires_at);
    row = *core_.index.find(id);
  }
  RowBatch batch;
  if (row.place == Place::fifo) {
    if (!pinned_room(row.bytes)) return false;
    auto record = database_->read(id, Place::fifo);
    const auto view = record ? decode(record->bytes()) : Result<RecordView>(record.error());
    if (!view || view->id != id) {
      ++summary.absent;
      if (core_.erase_if_same(id, row, record ? Removal::corrupt : Removal::aged_out)) {
        changes_.delete_row(id);
        core_.removed({&id, 1});
      }
      return true;
    }
    batch.put_pinned(id, *record);
  }
  row.place = Place::pinned;
  batch.put_row(id, row);
  if (const auto written = database_->write(batch); !written) {
    begin_outage(written.error());
    return false;
  }
  const std::lock_guard lock(core_.mutex);
  if (core_.index.find(id) == nullptr) {
    changes_.delete_row(id);
    changes_.delete_pinned(id);
    ++summary.absent;
    return true;
  }
  if (core_.index.find(id)->place == Place::fifo) {
    core_.index.move(id, Place::pinned, 0);
    core_.counters.rewritten_bytes += row.bytes;
  }
  ++summary.changed;
  return true;
}

void ColdWriter::unpin(std::vector<BlockId> ids, std::function<void(PinSummary)> done) {
  const auto one = [this](const BlockId& id, PinSummary& summary) {
    unpin_one(id, summary);
    return true;
  };
  change_pins(std::move(ids), one, std::move(done));
}

/// Back into the FIFO, as its newest; until that is durable it stays pinned.
void ColdWriter::unpin_one(const BlockId& id, PinSummary& summary) {
  if (!can_write()) return;
  Row row;
  {
    const std::lock_guard lock(core_.mutex);
    const Row* now = core_.index.find(id);
    if (now == nullptr || now->place == Place::fifo) {
      ++summary.absent;
      return;
    }
    if (!core_.in_flight.insert(id).second) return;
    row = *now;
  }
  const auto record = database_->read(id, Place::pinned);
  if (!record) {
    const std::lock_guard lock(core_.mutex);
    core_.in_flight.erase(id);
    return;  // stays as it is: the next load that meets it drops it
  }
  ++summary.changed;
  append(id, row, record->bytes(), {.fresh = false});
}

uint64_t ColdWriter::pending_bytes() const {
  uint64_t sum = 0;
  for (const Pending& one : pending_) sum += one.row.bytes;
  return sum;
}

void ColdWriter::commit_if_old() {
  if (pending_.empty()) {
    if (!changes_.empty()) commit();
    return;
  }
  const Duration age = core_.surroundings.clock.now() - oldest_pending_;
  if (age < std::chrono::milliseconds(core_.options.flush_age_ms)) return;
  // Many small files would cost each look-up: then only full buffers are flushed.
  const bool few = core_.files.files < limits::kv_payload_files_max;
  if (few || pending_bytes() >= core_.options.buffer_bytes / 2) commit();
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
  RowBatch batch = std::exchange(changes_, {});
  for (const Pending& one : pending) {
    batch.put_row(one.id, one.row);
    if (one.before.place == Place::pinned && !one.fresh) batch.delete_pinned(one.id);
  }
  add_used_rows(batch);
  if (!batch.empty()) {
    if (const auto written = database_->write(batch); !written) {
      give_up(pending);
      return begin_outage(written.error());
    }
  }
  publish(pending);
}

/// What moved within the store is at its new place as soon as that is durable: before the sweep,
/// which may find that the old one is gone. Leaves out what was erased or moved otherwise.
void ColdWriter::apply_moves(std::vector<Pending>& pending) {
  const std::lock_guard lock(core_.mutex);
  std::erase_if(pending, [this](const Pending& one) {
    if (one.fresh) return false;
    core_.in_flight.erase(one.id);
    const Row* now = core_.index.find(one.id);
    const bool same =
        now != nullptr && now->place == one.before.place && now->sequence == one.before.sequence;
    if (!same) return true;
    core_.index.move(one.id, Place::fifo, one.row.sequence);
    core_.counters.rewritten_bytes += one.row.bytes;
    return false;
  });
}

/// Uses that only memory knows so far: without them a restart forgets what was used last.
void ColdWriter::add_used_rows(RowBatch& batch) {
  const std::lock_guard lock(core_.mutex);
  for (const BlockId& id : std::exchange(core_.used, {})) {
    if (const Row* row = core_.index.find(id)) batch.put_row(id, *row);
  }
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
        if (core_.index.find(one.id) == nullptr) changes_.delete_row(one.id);
        continue;
      }
      core_.in_flight.erase(one.id);
      core_.index.release(one.row.tenant, one.row.bytes);
      if (!core_.index.insert(one.id, one.row)) {
        changes_.delete_row(one.id);
        ++core_.counters.skipped[Skip::index_full];
        continue;
      }
      fresh.push_back(one.id);
      ++core_.counters.stored_blocks;
      core_.counters.stored_bytes += one.row.bytes;
    }
  }
  core_.published(fresh);
}

void ColdWriter::give_up(const std::vector<Pending>& pending) {
  const std::lock_guard lock(core_.mutex);
  for (const Pending& one : pending) {
    core_.in_flight.erase(one.id);
    if (!one.fresh) continue;
    core_.index.release(one.row.tenant, one.row.bytes);
    ++core_.counters.skipped[Skip::write_failed];
  }
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
  std::vector<BlockId> aged, gone;
  std::vector<std::pair<BlockId, Place>> expired;
  {
    const std::lock_guard lock(core_.mutex);
    core_.files = *files;
    core_.index.age_out(files->files == 0 ? UINT64_MAX : files->oldest_sequence, aged);
    core_.index.expire(core_.now_s(), expired);
    core_.counters.removed[Removal::aged_out] += aged.size();
    core_.counters.removed[Removal::expired] += expired.size();
  }
  for (const BlockId& id : aged) changes_.delete_row(id);
  for (const auto& [id, place] : expired) {
    changes_.delete_row(id);
    if (place == Place::pinned) changes_.delete_pinned(id);
    gone.push_back(id);
  }
  core_.removed(aged);
  core_.removed(gone);
}

}  // namespace outrider::kvstore
