#include "kvstore/store_core.hpp"

#include <algorithm>
#include <utility>

namespace outrider::kvstore {
namespace {

/// A record that could not be read so often in a row is not worth another try; a disk that is gone
/// for a moment costs no more than what was asked of it so often meanwhile.
constexpr uint32_t k_failed_reads_max = 3;
constexpr uint64_t k_buffer_bytes_min = uint64_t{16} << 20;  // each flush costs two syncs
constexpr uint64_t k_buffer_bytes_max = uint64_t{256} << 20;

ColdStoreOptions completed(ColdStoreOptions options) {
  if (options.buffer_bytes == 0) {
    options.buffer_bytes = std::clamp(options.cap_bytes / (limits::kv_payload_files_max / 2),
                                      k_buffer_bytes_min, k_buffer_bytes_max);
  }
  if (options.queue_bytes == 0) options.queue_bytes = 2 * options.buffer_bytes;
  if (options.default_quota_bytes == 0) options.default_quota_bytes = options.cap_bytes;
  options.read_threads = std::max(1u, options.read_threads);
  options.pinned_share = std::clamp(options.pinned_share, 0.0, 0.5);
  return options;
}

}  // namespace

StoreCore::StoreCore(ColdStoreOptions given, Surroundings outside, StoreEvents told)
    : options(completed(std::move(given))),
      surroundings(std::move(outside)),
      events(std::move(told)),
      log(surroundings.log, surroundings.clock),
      index({limits::kv_index_rows_max, limits::kv_tenants_max, options.default_quota_bytes}),
      admission(options.touched_blocks_max) {
  for (const auto& [tenant, bytes] : options.quota_bytes) {
    index.set_quota(tenant_number(tenant), bytes);
  }
}

void StoreCore::count_dropped_job() {
  const std::lock_guard lock(mutex);
  ++counters.dropped_jobs;
}

void StoreCore::note_files(const PayloadFiles& now) {
  files = now;
  index.note_leaving({now.quarter_sequence, now.next_sequence, now.cap_bytes});
}

bool StoreCore::erase_if_same(const BlockId& id, const Row& row, Removal why,
                              const std::function<void()>& forget) {
  {
    const std::lock_guard lock(mutex);
    const Row* now = index.find(id);
    if (now == nullptr || now->sequence != row.sequence || now->place != row.place) return false;
    index.erase(id);
    ++counters.removed[why];
    note_removed({&id, 1});
    forget();
  }
  if (why == Removal::corrupt || why == Removal::unreadable) log.lost(id, why);
  return true;
}

bool StoreCore::erase_if_unreadable(const BlockId& id, const Row& row,
                                    const std::function<void()>& forget) {
  {
    const std::lock_guard lock(mutex);
    if (index.count_failed_read(id) < k_failed_reads_max) return false;
  }
  return erase_if_same(id, row, Removal::unreadable, forget);
}

void StoreCore::note(bool published, std::span<const BlockId> ids) {
  const auto& told = published ? events.published : events.removed;
  if (told && !ids.empty()) untold_.push_back({published, {ids.begin(), ids.end()}});
}

void StoreCore::tell() {
  std::unique_lock lock(mutex);
  if (telling_) return;
  telling_ = true;
  while (!untold_.empty()) {
    const std::vector<Event> next = std::exchange(untold_, {});
    lock.unlock();
    for (const Event& event : next) {
      (event.published ? events.published : events.removed)(event.ids);
    }
    lock.lock();
  }
  telling_ = false;
  told_.notify_all();
}

void StoreCore::wait_told() {
  std::unique_lock lock(mutex);
  told_.wait(lock, [this] { return !telling_ && untold_.empty(); });
}

Shares shares_of(const ColdStoreOptions& options, uint64_t quarantine_bytes) {
  const auto pinned =
      static_cast<uint64_t>(options.pinned_share * static_cast<double>(options.cap_bytes));
  const uint64_t rows = options.cap_bytes / 128;
  const uint64_t taken = pinned + rows + quarantine_bytes;
  const uint64_t left = options.cap_bytes > taken ? options.cap_bytes - taken : 0;
  return {std::max(left, options.buffer_bytes), pinned / 2};
}

}  // namespace outrider::kvstore
