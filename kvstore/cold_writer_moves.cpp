// The writer's work on records that move to the end of the FIFO: second chances, others' that would
// fall out, and unpinned ones.

#include <algorithm>

#include "kvstore/cold_writer.hpp"

namespace outrider::kvstore {

void ColdWriter::rewrite(const BlockId& id, RecordBytes record) {
  const uint64_t bytes = record.bytes().size();
  const Taken taken = enqueue(
      [this, id, record = std::move(record)] {
        if (!can_write()) return core_.count_dropped_job();
        Row row;
        {
          const std::lock_guard lock(core_.mutex);
          const Row* now = core_.index.find(id);
          // Another load may have asked for the same.
          if (now == nullptr || now->place == Place::pinned ||
              now->sequence >= core_.files.quarter_sequence || !core_.in_flight.insert(id).second) {
            return;
          }
          row = *now;
        }
        append(id, row, record.bytes(), {.fresh = false});
      },
      bytes, true);
  if (taken != Taken::yes) core_.count_dropped_job();
}

std::vector<ColdWriter::Moving> ColdWriter::begin_moves(const std::vector<BlockId>& ids) {
  std::vector<Moving> begun;
  for (const BlockId& id : ids) {
    if (core_.in_flight.insert(id).second) begun.push_back({id, *core_.index.find(id)});
  }
  return begun;
}

/// Into the payload buffer. What cannot be read stays where it is, or loses its row.
void ColdWriter::move_to_end(const Moving& one) {
  PinSummary ignored;
  if (can_write()) {  // the last one may have flushed, and that may have failed
    if (const auto record = record_to_move(one.id, one.row, ignored)) {
      return add_pending(one.id, one.row, record->bytes(), {.fresh = false});
    }
  }
  const std::lock_guard lock(core_.mutex);
  core_.in_flight.erase(one.id);
}

/// Others' records that fall out before long by this one, which is on its way
/// (`ColdIndex::spare`).
void ColdWriter::spare_others(const BlockId& id, const Row& coming) {
  if (!can_write()) return;
  std::vector<Moving> moving;
  {
    const std::lock_guard lock(core_.mutex);
    const auto moves = [this](const BlockId& one) { return core_.in_flight.contains(one); };
    moving = begin_moves(core_.index.spare(id, coming, moves));
  }
  for (const Moving& one : moving) {
    move_to_end(one);
    commit_if_full();
  }
}

/// Moves others' records of the oldest file that has any, which stand in the way of this one. All
/// at once: a flush of some would make room for itself at the cost of the rest. True if it did.
bool ColdWriter::clear_oldest_file(const Row& coming) {
  const auto oldest = [&] {
    const std::lock_guard lock(core_.mutex);
    return core_.index.oldest_to_spare(coming);
  };
  if (!oldest()) return false;
  commit();  // what waits in the buffer needs room too
  if (!can_write()) return false;
  const auto first = oldest();
  if (!first) return true;
  const auto files = database_->payload_sequences();
  const auto in = std::find_if(files.begin(), files.end(),
                               [&](const SequenceRange& file) { return *first <= file.last; });
  if (in == files.end()) return false;
  std::vector<Moving> moving;
  {
    const std::lock_guard lock(core_.mutex);
    moving = begin_moves(core_.index.others_until(coming, in->last));
  }
  for (const Moving& one : moving) move_to_end(one);
  commit();
  return !moving.empty() && can_write();
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

/// A verified record of the FIFO. One that is not there or damaged loses its row and counts as
/// absent; one that the system could not read stays where it is.
Result<RecordBytes> ColdWriter::record_to_move(const BlockId& id, const Row& row,
                                               PinSummary& summary) {
  const auto forget = [&] { deletions_.delete_row(id); };
  auto record = database_->read(id, Place::fifo);
  if (!record && record.error().code == ErrorCode::io) {
    if (core_.erase_if_unreadable(id, row, forget)) core_.tell();
    return record;
  }
  const auto view = record ? decode(record->bytes()) : Result<RecordView>(record.error());
  if (view && view->id == id) return record;
  const bool aged_out = !record && record.error().code == ErrorCode::not_found;
  ++summary.absent;
  const Removal why = aged_out ? Removal::aged_out : Removal::corrupt;
  if (core_.erase_if_same(id, row, why, forget)) core_.tell();
  return fail(ErrorCode::corrupt, "no record to move");
}

/// Whether what was pinned would push nobody else's out of the FIFO.
bool ColdWriter::may_come_back(const Row& row) {
  const auto crowds = [&] {
    const std::lock_guard lock(core_.mutex);
    return core_.index.crowds(row);
  };
  return !crowds() || (clear_oldest_file(row) && !crowds());
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
  if (!may_come_back(row)) {
    const std::lock_guard lock(core_.mutex);
    core_.in_flight.erase(id);
    return;
  }
  const auto record = database_->read(id, Place::pinned);
  if (!record) {
    const std::lock_guard lock(core_.mutex);
    core_.in_flight.erase(id);
    return;  // stays as it is: the next load that meets it drops it
  }
  ++summary.changed;
  append(id, row, record->bytes(), {.fresh = false});
  spare_others(id, row);
}

}  // namespace outrider::kvstore
