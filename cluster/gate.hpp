#pragma once

#include <kj/io.h>
#include <spdlog/logger.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "cluster/credentials.hpp"
#include "cluster/endpoint.hpp"
#include "cluster/handshake.hpp"

namespace outrider::cluster {

struct GateCounters {
  uint32_t connected = 0;                      ///< Members, now.
  uint32_t line_ends = 0;                      ///< Now: joined, or waiting for their other ends.
  std::array<uint64_t, k_refusals> refused{};  ///< Connections, by Refusal.
};

/// The only way between this process's actors and other processes: it listens and dials, agrees on
/// the protocol's version, checks credentials and lengths, bounds everything, and hands out plain
/// sockets that only carry what passed. A thread of its own, so that load elsewhere delays no
/// heartbeat. Thread-safe.
class Gate {
 public:
  struct Setup {
    Credentials credentials;
    std::shared_ptr<spdlog::logger> log;
  };
  /// Hears of each member that was let in, on the gate's thread: its socket.
  using Admit = std::function<void(kj::AutoCloseFd)>;

  /// Errors: the credentials cannot be used.
  static Result<std::unique_ptr<Gate>> open(Setup setup);
  /// Cuts all connections. Nobody may dial any more.
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Its port. Once.
  Result<uint16_t> listen(const Endpoint& endpoint, Admit admit);
  /// Returns when `admit` will not be called any more. What is connected stays.
  void stop_listening();
  /// Connects to a gate that listens, within limits::cluster_handshake_ms. Blocks as long. The
  /// error says what was found there instead, or why this process was refused.
  Result<kj::AutoCloseFd> dial(const Endpoint& endpoint);
  /// One end of the line of that name at a gate that listens: a socket on which whoever has the
  /// other end is heard, once it is there. A line that is silent for limits::cluster_silence_ms, or
  /// whose second end does not come within limits::cluster_line_wait_ms, is cut. Blocks and fails
  /// as `dial`.
  Result<kj::AutoCloseFd> dial_line(const Endpoint& endpoint, const LineToken& token);
  /// The same at this gate. Errors: as many line ends are here as there may be.
  Result<kj::AutoCloseFd> own_line(const LineToken& token);

  GateCounters counters() const;

 private:
  struct Thread;
  explicit Gate(std::unique_ptr<Thread> thread);
  Result<kj::AutoCloseFd> dial(const Endpoint& endpoint, const LineToken* line);

  std::unique_ptr<Thread> thread_;
};

}  // namespace outrider::cluster
