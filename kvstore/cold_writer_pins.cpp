// The writer's work on pinned records, which never leave by themselves, and on tenants that drop
// all they have.

#include <algorithm>

#include "kvstore/cold_writer.hpp"

namespace outrider::kvstore {
namespace {

RecordBytes owned(std::vector<std::byte> bytes) {
  auto shared = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> view(*shared);
  return {std::move(shared), view};
}

}  // namespace

void ColdWriter::store_pinned(const BlockId& id, const Row& row, std::vector<std::byte> record) {
  RowBatch batch;
  batch.put_pinned(id, owned(std::move(record)));
  batch.put_row(id, row);
  const bool written = write(batch);
  {
    const std::lock_guard lock(core_.mutex);
    core_.index.release(id);
    core_.in_flight.erase(id);
    if (written) {
      core_.index.insert(id, row);
      ++core_.counters.stored_blocks;
      core_.counters.stored_bytes += row.bytes;
      core_.note_published({&id, 1});
    } else {
      ++core_.counters.skipped[Skip::write_failed];
    }
  }
  core_.tell();
}

/// Live records have half of the share, files of live and dead ones too: compaction needs as much
/// again for a moment. It writes all of them, so it is for a sixteenth of dead ones or more. No
/// tenant has more than half of what live ones have.
bool ColdWriter::pinned_room(const Row& row) {
  const uint64_t room = shares_of(core_.options, 0).pinned_bytes;
  const uint64_t files = database_->pinned_file_bytes();
  const uint64_t bytes = row.bytes;
  {
    const std::lock_guard lock(core_.mutex);
    const uint64_t live = core_.index.pinned_bytes();
    if (live + bytes > room) return false;
    if (core_.index.pinned_bytes(row.tenant) + bytes > room / 2) return false;
    if (files + bytes <= room) return true;
    if (files < live + room / 16) return false;
    ++core_.counters.pinned_compactions;
  }
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
  const auto count = [this, done = std::move(done)](PinSummary summary) {
    count_refused_pins(summary.refused);
    if (done) done(summary);
  };
  change_pins(std::move(ids), one, count);
}

void ColdWriter::count_refused_pins(uint64_t blocks) {
  const std::lock_guard lock(core_.mutex);
  core_.counters.refused_pins += blocks;
}

/// Of a block that came to be pinned.
void ColdWriter::refuse_pin(const PutOptions& options) {
  if (!options.pin) return;
  count_refused_pins(1);
  if (options.pins_refused) ++*options.pins_refused;
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
  sweep_expired();
  Row row;
  {
    const std::lock_guard lock(core_.mutex);
    const Row* now = core_.index.find(id);
    if (now == nullptr) {
      ++summary.absent;
      return true;
    }
    row = *now;
  }
  // Nobody asked for an end of what is not pinned and has none.
  const bool asked = row.place == Place::pinned || row.expires_at != 0;
  const int64_t end = asked ? later_of(row.expires_at, expires_at) : expires_at;
  if (row.place == Place::pinned && row.expires_at == end) {
    ++summary.changed;
    return true;
  }
  RowBatch batch;
  if (row.place == Place::fifo) {
    if (!pinned_room(row)) return false;
    auto record = record_to_move(id, row, summary);
    if (!record) return true;
    batch.put_pinned(id, *std::move(record));
  }
  row.place = Place::pinned;
  row.sequence = 0;
  row.expires_at = end;
  batch.put_row(id, row);
  if (!write(batch)) return false;
  const std::lock_guard lock(core_.mutex);
  if (core_.index.find(id) == nullptr) {
    delete_row(id, Place::pinned);
    ++summary.absent;
    return true;
  }
  core_.index.set_expiry(id, end);
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

/// Not bounded by itself: each caller waits for its answer. An engine's thread may call: no lock
/// that is held for long.
void ColdWriter::drop_all(std::optional<uint64_t> tenant,
                          std::function<void(Result<uint64_t>)> done) {
  if (opening_) return done(fail(ErrorCode::unavailable, "the KV store is still opening"));
  const auto task = [this, tenant, done] { done(drop_all_now(tenant)); };
  if (enqueue(task, 0, false) != Taken::yes) {
    done(fail(ErrorCode::unavailable, "the KV store is closed"));
  }
}

Result<uint64_t> ColdWriter::drop_all_now(std::optional<uint64_t> tenant) {
  constexpr size_t k_rows_at_once = 1024;  // callers wait for the mutex
  if (!can_write()) return outage_error();
  commit();  // what was put before has its row then
  std::vector<BlockId> ids;
  {
    const std::lock_guard lock(core_.mutex);
    ids = core_.index.ids(tenant);
  }
  const std::span<const BlockId> all(ids);
  for (size_t begin = 0; begin < all.size(); begin += k_rows_at_once) {
    drop_now(all.subspan(begin, std::min(k_rows_at_once, all.size() - begin)),
             [this](const BlockId& id, Place at) { delete_row(id, at); });
  }
  core_.tell();
  commit();
  if (!database_ || write_failed_) return outage_error();
  return ids.size();
}

/// For whoever asked, who need not know where the store is.
Error ColdWriter::outage_error() const {
  const std::lock_guard lock(core_.mutex);
  return fail(ErrorCode::unavailable,
              "the KV store cannot be written: " + std::string(to_string(core_.outage)));
}

}  // namespace outrider::kvstore
