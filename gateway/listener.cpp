#include "gateway/listener.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "base/limits.hpp"

namespace outrider::gateway {

Listener::Listener(Parts parts, Serve serve)
    : parts_(kj::mv(parts)),
      serve_(kj::mv(serve)),
      connections_(*this),
      accepting_(accept_loop().eagerlyEvaluate(nullptr)) {}

kj::Promise<void> Listener::accept_loop() {
  // Without descriptors KJ's accept() throws before there is a promise.
  return kj::evalNow([this] { return parts_.port->accept(); })
      .then([this](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
        failing_ = false;
        accepted(kj::mv(stream));
        return kj::READY_NOW;
      })
      .catch_([this](kj::Exception&& exception) -> kj::Promise<void> {
        if (!std::exchange(failing_, true)) {
          parts_.log->warn("accept failed, trying on: {}", exception.getDescription().cStr());
        }
        return parts_.timer.afterDelay(limits::accept_pause_ms * kj::MILLISECONDS);
      })
      .then([this] { return accept_loop(); });
}

void Listener::accepted(kj::Own<kj::AsyncIoStream> stream) {
  if (open_ >= parts_.connections_max) return;  // closes it
  const auto set = [&](int level, int option, int value) {
    [[maybe_unused]] auto refused = kj::runCatchingExceptions(
        [&] { stream->setsockopt(level, option, &value, sizeof(value)); });
  };
  set(SOL_SOCKET, SO_SNDBUF, limits::client_send_buffer_bytes);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, limits::client_keepalive_s);
  set(IPPROTO_TCP, TCP_KEEPINTVL, limits::client_keepalive_s / limits::client_keepalive_probes);
  set(IPPROTO_TCP, TCP_KEEPCNT, limits::client_keepalive_probes);
  ++open_;
  parts_.metrics.connections_open.Increment();
  auto count = kj::defer([this] {
    --open_;
    parts_.metrics.connections_open.Decrement();
  });
  connections_.add(serve_(kj::mv(stream)).attach(kj::mv(count)));
}

void Listener::taskFailed(kj::Exception&& exception) {
  // Broken connections are everyday life; what a request did wrong was answered where it happened.
  parts_.log->debug("connection ended: {}", exception.getDescription().cStr());
}

}  // namespace outrider::gateway
