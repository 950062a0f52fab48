#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "actors/peer_lines.hpp"
#include "model/block_tier.hpp"

namespace outrider::actors {

/// What lines carried of late. Thread-safe.
class LineSpeed {
 public:
  void observe(double bytes_per_s, TimePoint now);
  /// Whether so many bytes are expected within so many seconds. Slow moments pass: who was last
  /// used long ago is given a try, by one load.
  bool promises(double bytes, double seconds, TimePoint now);

 private:
  static constexpr double k_until_one_was_used = 100e6;
  std::mutex mutex_;
  double bytes_per_s_ = k_until_one_was_used;
  TimePoint used_{0};  ///< Or tried.
};

/// One worker that gives its blocks away: a line to it, there as long as a request may need it, and
/// a thread that asks on it for one request at a time. Whatever goes wrong is a miss. Thread-safe.
class PeerLine {
 public:
  struct Setup {
    PeerLines lines;
    std::string gate;
    std::function<void(LineName)> tell;  ///< Has the worker come to a line at that gate.
    /// What the worker does not have.
    std::function<void(model::TierLoad, model::TierHandlers)> below;
    std::shared_ptr<LineSpeed> speed;
    std::shared_ptr<std::atomic<uint64_t>> taken;  ///< Counts blocks.
    std::shared_ptr<spdlog::logger> log;
  };
  /// Begins to connect at once: so the worker knows that it is to stay. Throws std::system_error
  /// where no thread is to be had.
  explicit PeerLine(Setup setup);
  /// Ends the line; what is asked for is a miss.
  ~PeerLine();
  PeerLine(const PeerLine&) = delete;
  PeerLine& operator=(const PeerLine&) = delete;

  /// One request more, or less, may ask. With the last one the line ends; without that word, after
  /// limits::hand_over_ms.
  void need();
  void through();
  /// False, and nothing is taken: computing is sooner, or the line is over.
  bool load(model::TierLoad& load, model::TierHandlers& handlers);
  bool is_over() const;
  bool has_failed() const;  ///< It is over, and was needed.
  const std::string& gate() const { return setup_.gate; }

 private:
  struct Job {
    model::TierLoad load;
    model::TierHandlers handlers;
    TimePoint by;
  };
  enum class End : uint8_t { whole, stopped, broken };

  void run();
  bool is_needed() const;
  bool connect();
  bool offer_nccl();
  /// False: the line is of no more use.
  bool fetch(Job job);
  End take(const Job& job, uint32_t& got);

  const Setup setup_;
  std::shared_ptr<link::TensorLink> link_;  ///< The thread's; changed under the mutex.
  bool has_agreed_ = false;                 ///< With the other end, to go over NCCL or to stay.
  mutable std::mutex mutex_;
  const std::unique_ptr<LineThreads::Condition> wake_;
  std::deque<Job> jobs_;
  uint64_t waiting_bytes_ = 0;  ///< Of all that is asked for and has not ended.
  uint32_t needed_by_ = 0;
  TimePoint needed_since_{0};  ///< By the last of them.
  bool is_over_ = false;
  bool has_failed_ = false;
  bool stops_ = false;
  std::unique_ptr<LineThreads::Thread> thread_;
};

}  // namespace outrider::actors
