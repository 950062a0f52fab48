#include "kvstore/store_log.hpp"

#include "base/hash.hpp"
#include "base/log.hpp"

namespace outrider::kvstore {
namespace {

/// A broken disk loses thousands of records a second.
constexpr Duration k_between_lost = std::chrono::seconds(10);

}  // namespace

StoreLog::StoreLog(std::shared_ptr<spdlog::logger> log, const Clock& clock)
    : log_(log ? std::move(log) : silent_logger()), clock_(clock) {}

void StoreLog::opened(const OpenedAs& what) const {
  LogLine("KV store is open")
      .text("dir", what.directory)
      .number("records", static_cast<int64_t>(what.records))
      .number("bytes", static_cast<int64_t>(what.bytes))
      .number("tenants", static_cast<int64_t>(what.tenants))
      .text("last_stop", what.last_stop)
      .write(*log_);
}

void StoreLog::deleted(const std::string& first, uint64_t files) const {
  log_->warn(
      "KV store: another program deleted {} ({} such files): read until the store closes, then "
      "lost",
      first, files);
}

void StoreLog::moved(const std::string& directory, const std::string& to) const {
  log_->warn(
      "KV store: another program moved {} to {}: what is stored goes there until this process ends",
      directory, to);
}

void StoreLog::salvaging(const std::string& directory, uint64_t bytes,
                         const std::string& why) const {
  log_->warn(
      "KV store {} is damaged: {}; keeping what can be read of {} MB, requests compute meanwhile",
      directory, why, bytes / 1'000'000);
}

void StoreLog::salvaged(const std::string& directory, uint64_t kept,
                        std::optional<uint64_t> lost) const {
  log_->warn("KV store {} was salvaged: {} records kept, {} lost", directory, kept,
             lost ? std::to_string(*lost) : "nobody knows how many");
}

void StoreLog::moved_aside(const std::string& directory, const std::string& to,
                           const std::string& why) const {
  log_->warn("KV store {} was damaged: moved to {}, begins empty ({})", directory, to, why);
}

void StoreLog::outage(const std::string& directory, Outage what, const std::string& why) const {
  log_->warn("KV store {} is out, requests compute instead: {} ({})", directory, to_string(what),
             why);
}

void StoreLog::lost(const BlockId& id, Removal why) {
  uint64_t more = 0;
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = clock_.now();
    if (now < quiet_until_) {
      ++not_told_;
      return;
    }
    quiet_until_ = now + k_between_lost;
    more = std::exchange(not_told_, 0);
  }
  log_->warn("KV store: record {} is {} and was dropped ({} more since the last such line)",
             to_hex(id).substr(0, 16), to_string(why), more);
}

}  // namespace outrider::kvstore
