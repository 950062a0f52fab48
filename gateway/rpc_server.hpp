#pragma once

#include <capnp/capability.h>
#include <kj/async-io.h>

#include <memory>

#include "gateway/http_settings.hpp"
#include "gateway/listener.hpp"
#include "gateway/serving.hpp"

namespace outrider::gateway {

struct RpcShared;

/// The Cap'n Proto port (schema/outrider.capnp): messages bounded in words and nesting, connections
/// bounded in number, and in time and bytes before they have logged in. KJ thread; must be
/// destroyed before `serving`.
class RpcServer {
 public:
  RpcServer(Serving& serving, kj::Timer& timer, const HttpSettings& settings);
  ~RpcServer();

  void listen(kj::Own<kj::ConnectionReceiver> port);
  uint16_t port() { return listener_->port(); }
  /// Sends no more and resolves when the clients have gone. A client acknowledges what it has not
  /// read yet: a socket that were closed by then would take the answers behind that from it.
  kj::Promise<void> drain();

 private:
  kj::Promise<void> serve(kj::Own<kj::AsyncIoStream> stream);

  Serving& serving_;
  std::shared_ptr<RpcShared> shared_;
  kj::PromiseFulfillerPair<void> draining_ = kj::newPromiseAndFulfiller<void>();
  kj::ForkedPromise<void> drains_ = draining_.promise.fork();
  std::unique_ptr<Listener> listener_;
};

}  // namespace outrider::gateway
