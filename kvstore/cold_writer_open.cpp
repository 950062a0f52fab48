// The writer's work on the directory: it opens it, fills the index, begins and ends outages.

#include <algorithm>
#include <filesystem>

#include "kvstore/cold_open.hpp"
#include "kvstore/cold_writer.hpp"
#include "kvstore/store_place.hpp"

namespace outrider::kvstore {

namespace fs = std::filesystem;

/// Rows as they were read, but for those that do not fit any more and those whose deletion failed.
/// Pinned ones come first: a smaller quota costs what can make room.
void ColdWriter::fill_index(std::vector<std::pair<BlockId, Row>> rows) {
  constexpr size_t k_rows_at_once = 1024;  // callers wait for the mutex
  const auto deleted = deletions_.deleted_rows();
  std::erase_if(rows, [&](const auto& entry) { return deleted.contains(entry.first); });
  add_unwritten_uses(rows);
  const auto is_pinned = [](const auto& entry) { return entry.second.place == Place::pinned; };
  std::stable_partition(rows.begin(), rows.end(), is_pinned);
  const std::span all(rows);
  for (size_t begin = 0; begin < all.size(); begin += k_rows_at_once) {
    const std::lock_guard lock(core_.mutex);
    for (const auto& [id, row] : all.subspan(begin, std::min(k_rows_at_once, all.size() - begin))) {
      if (core_.index.insert(id, row)) continue;
      delete_row(id, row.place);
      ++core_.counters.removed[Removal::quota];
    }
  }
  std::vector<BlockId> evicted;
  {
    const std::lock_guard lock(core_.mutex);
    core_.index.trim(evicted);
    core_.counters.removed[Removal::quota] += evicted.size();
  }
  for (const BlockId& gone : evicted) deletions_.delete_row(gone);  // never a pinned one
}

/// Of the database before, whose disk refused them: they wait for the next write again.
void ColdWriter::add_unwritten_uses(std::vector<std::pair<BlockId, Row>>& rows) {
  if (!database_ || unwritten_.empty()) return;
  const std::lock_guard lock(core_.mutex);
  for (auto& [id, row] : rows) {
    const auto known = unwritten_.find(id);
    if (known == unwritten_.end()) continue;
    row.expires_at = later_of(row.expires_at, known->second.expires_at);
    row.used_at = std::max(row.used_at, known->second.used_at);
    row.hits = std::max(row.hits, known->second.hits);
    core_.used.insert(id);
  }
  unwritten_.clear();
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.used_at < b.second.used_at;
  });
}

/// A disk that damages what was just salvaged costs the store rather than another look at all of
/// it.
Opening ColdWriter::opening() {
  const std::lock_guard lock(core_.mutex);
  return {.random_bits = core_.surroundings.random_bits,
          .known_damage = std::exchange(known_damage_, {}),
          .may_salvage = core_.counters.salvaged == 0,
          .file_system = file_system_,
          .salvaging = [this](uint64_t bytes, const std::string& damage) {
            is_salvaging_ = true;
            core_.log.salvaging(core_.options.directory, bytes, damage);
          }};
}

void ColdWriter::open() {
  OpenedStore opened = open_store(core_.options, opening());
  is_salvaging_ = false;
  if (opened.database) {
    // The last one to hold it, a reader perhaps, closes it.
    auto closed = std::make_shared<std::promise<void>>();
    database_closed_ = closed->get_future();
    database_ = std::shared_ptr<Database>(opened.database.release(), [closed](Database* database) {
      delete database;
      closed->set_value();
    });
  }
  payload_written_bytes_ = 0;
  const bool again = database_ && opened.store_uuid == last_open_;
  if (database_) last_open_ = opened.store_uuid;
  if (opened.quarantined) deletions_ = {};
  fill_index(std::move(opened.rows));
  for (const auto& [id, row] : opened.gone) deletions_.delete_row(id);
  if (database_) learn_tenant_names();
  std::vector<BlockId> present;
  bool began = false;
  {
    const std::lock_guard lock(core_.mutex);
    for (const auto& [id, row] : core_.index.all()) present.push_back(id);
    if (opened.salvaged) {
      core_.counters.removed[Removal::corrupt] += opened.lost_records.value_or(opened.gone.size());
    } else {
      core_.counters.removed[Removal::aged_out] += opened.gone.size();
    }
    core_.counters.broken_rows += opened.broken_rows;
    core_.counters.salvaged += opened.salvaged ? 1 : 0;
    core_.counters.quarantined += opened.quarantined ? 1 : 0;
    core_.counters.unclean_starts += opened.unclean && !again ? 1 : 0;
    core_.database = database_;
    if (database_ && !is_limited_) database_->lift_write_limit();
    core_.note_files(opened.files);
    core_.deleted_files = 0;
    core_.store_uuid = opened.store_uuid;
    core_.outage_text = opened.outage_text;
    began = opened.outage != core_.outage && opened.outage != Outage::none;
    if (began) ++core_.counters.outages[opened.outage];
    core_.outage = opened.outage;
    core_.note_published(present);
  }
  core_.tell();
  if (began) core_.log.outage(core_.options.directory, opened.outage, opened.outage_text);
  log_opened(opened, again);
  write_failed_ = false;
  named_tenants_.clear();
  named_namespaces_.clear();
  uses_written_ = core_.surroundings.clock.now();
  if (!database_) {
    retry_at_ = next_try();
  } else if (const auto here = file_system_of(core_.options.directory)) {
    file_system_ = here;
  }
}

/// Of those that have records. A mark with another name than its number says is damage.
void ColdWriter::learn_tenant_names() {
  std::vector<TenantUse> tenants;
  {
    const std::lock_guard lock(core_.mutex);
    tenants = core_.index.tenants();
  }
  std::map<uint64_t, std::string> names;
  for (const TenantUse& tenant : tenants) {
    if (names.size() == limits::kv_tenant_names_max) break;
    const auto name = tenant.rows == 0 ? std::nullopt : database_->mark(tenant_mark(tenant.tenant));
    if (name && tenant_number(*name) == tenant.tenant) names.emplace(tenant.tenant, *name);
  }
  const std::lock_guard lock(core_.mutex);
  core_.tenant_names = std::move(names);
}

/// Which one, after an outage, this process itself had open before.
void ColdWriter::log_opened(const OpenedStore& opened, bool again) {
  const std::string& directory = core_.options.directory;
  if (opened.quarantined) {
    core_.log.moved_aside(directory, quarantine_directory(directory), opened.damage);
  }
  if (!database_) return;
  OpenedAs what{.directory = directory, .last_stop = opened.unclean ? "killed" : "clean"};
  if (again) what.last_stop = "outage";
  if (opened.made) what.last_stop = "none";
  {
    const std::lock_guard lock(core_.mutex);
    what.records = core_.index.rows();
    what.bytes = core_.index.bytes();
    for (const TenantUse& tenant : core_.index.tenants()) what.tenants += tenant.rows != 0 ? 1 : 0;
  }
  if (opened.salvaged) core_.log.salvaged(directory, what.records, opened.lost_records);
  core_.log.opened(what);
}

/// Closes the database once nobody reads from it.
void ColdWriter::retire(bool tell) {
  std::vector<BlockId> gone;
  {
    const std::lock_guard lock(core_.mutex);
    core_.database.reset();
    for (const BlockId& id : std::exchange(core_.used, {})) {
      if (const Row* row = core_.index.find(id)) unwritten_[id] = *row;
    }
    for (const auto& [id, row] : core_.index.all()) gone.push_back(id);
    for (const BlockId& id : gone) core_.index.erase(id);
    core_.index.forget_files();
    if (tell && database_) core_.note_removed(gone);
  }
  core_.tell();
  if (!database_) return;
  database_.reset();
  database_closed_.wait();
}

/// True if a write has a chance. Tries again now and then after a failure.
bool ColdWriter::can_write() {
  if (database_ && !write_failed_) return true;
  if (is_closing() || core_.surroundings.clock.now() < retry_at_) return false;
  // RocksDB does not write again after an error; a database that is opened again does. While the
  // disk still refuses, the old one goes on serving reads.
  if (database_ && known_damage_.empty()) {
    const std::string path = database_directory(core_.options.directory);
    std::error_code ignored;
    // One that another program deleted takes no write ever again: a new one is made.
    const bool gone = fs::status(path, ignored).type() == fs::file_type::not_found &&
                      !is_away(core_.options.directory, file_system_);
    const auto error = gone ? std::nullopt : Database::cannot_write(path);
    if (error) {
      retry_at_ = next_try();
      const std::lock_guard lock(core_.mutex);
      core_.outage_text = error->message;
      return false;
    }
  }
  give_up(std::exchange(pending_, {}));
  retire(true);
  open();
  return database_ != nullptr;
}

TimePoint ColdWriter::next_try() const {
  return core_.surroundings.clock.now() + std::chrono::milliseconds(limits::kv_write_retry_ms);
}

void ColdWriter::begin_outage(const Error& error) {
  retry_at_ = next_try();
  known_damage_ = error.code == ErrorCode::corrupt ? error.message : "";
  Outage why = Outage::io_error;
  if (error.code == ErrorCode::too_large) why = Outage::no_space;
  if (error.code == ErrorCode::corrupt) why = Outage::damaged;
  if (!write_failed_) core_.log.outage(core_.options.directory, why, error.message);
  const std::lock_guard lock(core_.mutex);
  if (!write_failed_) ++core_.counters.outages[why];
  write_failed_ = true;
  core_.outage = why;
  core_.outage_text = error.message;
}

}  // namespace outrider::kvstore
