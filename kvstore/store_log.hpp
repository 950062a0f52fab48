#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/block_id.hpp"
#include "base/clock.hpp"
#include "kvstore/cold_stats.hpp"

namespace spdlog {
class logger;
}

namespace outrider::kvstore {

/// What a store directory was found to be when it opened.
struct OpenedAs {
  std::string directory;
  std::string last_stop;  ///< "clean", "killed", "outage" of this process, "none" of a new store
  uint64_t records = 0;
  uint64_t bytes = 0;
  uint64_t tenants = 0;  ///< with records
};

/// What an operator should read about a store. Thread-safe; nothing is called under a mutex of the
/// store.
class StoreLog {
 public:
  /// `log` may be null: silent.
  StoreLog(std::shared_ptr<spdlog::logger> log, const Clock& clock);

  void opened(const OpenedAs& what) const;
  /// Files that are gone while the store has them open: the first, and how many.
  void deleted(const std::string& first, uint64_t files) const;
  void moved(const std::string& directory, const std::string& to) const;
  /// Before it, for it may take long, and after it.
  void salvaging(const std::string& directory, uint64_t bytes, const std::string& why) const;
  void salvaged(const std::string& directory, uint64_t kept, std::optional<uint64_t> lost) const;
  void moved_aside(const std::string& directory, const std::string& to,
                   const std::string& why) const;
  void outage(const std::string& directory, Outage what, const std::string& why) const;
  /// A record that proved nothing, or could not be read, left the index. One line in ten seconds.
  void lost(const BlockId& id, Removal why);

 private:
  std::shared_ptr<spdlog::logger> log_;
  const Clock& clock_;
  std::mutex mutex_;
  TimePoint quiet_until_{0};
  uint64_t not_told_ = 0;  ///< lost since the last line
};

}  // namespace outrider::kvstore
