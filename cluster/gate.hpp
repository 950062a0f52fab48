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

  GateCounters counters() const;

 private:
  struct Thread;
  explicit Gate(std::unique_ptr<Thread> thread);

  std::unique_ptr<Thread> thread_;
};

}  // namespace outrider::cluster
