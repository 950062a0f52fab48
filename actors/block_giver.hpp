#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/engine_port.hpp"
#include "actors/peer_lines.hpp"

namespace outrider::actors {

/// Gives the blocks that an engine has to other targets that ask for them on lines: a thread for
/// each. Thread-safe.
class BlockGiver {
 public:
  BlockGiver(std::shared_ptr<EnginePort> engine, PeerLines lines,
             std::shared_ptr<spdlog::logger> log);
  /// Ends all lines.
  ~BlockGiver();
  BlockGiver(const BlockGiver&) = delete;
  BlockGiver& operator=(const BlockGiver&) = delete;

  /// Answers on that line until who asks there is through with it. Beyond limits::peer_lines_max at
  /// a time it is refused.
  void serve(std::string gate, LineName line);
  uint32_t open() const { return open_; }    ///< Lines.
  uint64_t given() const { return given_; }  ///< Blocks.

 private:
  class Reading;
  struct Line {
    // Both under the mutex.
    std::shared_ptr<link::TensorLink> link;
    std::shared_ptr<Reading> reading;
    std::atomic<bool> ended = false;
    std::unique_ptr<LineThreads::Thread> thread;  ///< Last: it uses the rest.
  };
  void run(Line& line, const std::string& gate, const LineName& name);
  /// From now on the line's. False: there shall be none.
  bool take(Line& line, std::shared_ptr<link::TensorLink> link);
  bool answer_nccl(Line& line, const link::Message& offer);
  void answer(Line& line);
  bool give(Line& line, model::CachedQuery query);
  /// Null: it is to stop.
  std::shared_ptr<Reading> begin_reading(Line& line);

  const std::shared_ptr<EnginePort> engine_;
  const PeerLines lines_;
  const std::shared_ptr<spdlog::logger> log_;
  std::atomic<uint32_t> open_ = 0;
  std::atomic<uint64_t> given_ = 0;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Line>> all_;
};

}  // namespace outrider::actors
