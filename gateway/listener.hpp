#pragma once

#include <kj/async-io.h>
#include <kj/timer.h>
#include <spdlog/logger.h>

#include <memory>

#include "base/metrics.hpp"

namespace outrider::gateway {

/// Accepts connections up to a bound and hands each to `serve`; beyond the bound a connection is
/// closed at once. Survives refusals of the operating system (no descriptors left). KJ thread.
class Listener final : private kj::TaskSet::ErrorHandler {
 public:
  struct Parts {
    kj::Own<kj::ConnectionReceiver> port;
    kj::Timer& timer;
    ServingMetrics& metrics;
    std::shared_ptr<spdlog::logger> log;
    uint32_t connections_max = 0;
  };
  using Serve = kj::Function<kj::Promise<void>(kj::Own<kj::AsyncIoStream>)>;

  Listener(Parts parts, Serve serve);

  uint16_t port() { return static_cast<uint16_t>(parts_.port->getPort()); }
  /// No new connections from now on; open ones go on.
  void stop_accepting() { accepting_ = nullptr; }
  /// Resolves when no connection is open.
  kj::Promise<void> idle() { return connections_.onEmpty(); }

 private:
  kj::Promise<void> accept_loop();
  void accepted(kj::Own<kj::AsyncIoStream> stream);
  void taskFailed(kj::Exception&& exception) override;

  Parts parts_;
  Serve serve_;
  uint32_t open_ = 0;
  bool failing_ = false;  ///< Since the last accepted connection: logged once.
  kj::TaskSet connections_;
  kj::Promise<void> accepting_;
};

}  // namespace outrider::gateway
