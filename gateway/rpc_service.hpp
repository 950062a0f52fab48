#pragma once

#include <kj/async.h>
#include <kj/timer.h>

#include <memory>

#include "gateway/http_settings.hpp"
#include "gateway/serving.hpp"
#include "schema/outrider.capnp.h"

namespace outrider::gateway {

/// What the capabilities of all connections share. Cap'n Proto may keep a capability, or a call
/// that was told to stop, until the loop turns again: so they hold this, and the server that ends
/// first takes `serving` away and cancels what runs.
struct RpcShared {
  Serving* serving = nullptr;
  kj::Timer& timer;
  const HttpSettings settings;
  kj::Canceler running;
};

/// What a connection gets before it has shown a key. One per connection; `done` becomes true with
/// the first login that succeeds.
kj::Own<rpc::Login::Server> new_login(std::shared_ptr<RpcShared> shared,
                                      std::shared_ptr<bool> done);

/// An Error as an RPC client sees it: an exception whose text is HTTP's JSON error object.
kj::Exception rpc_exception(const Error& error, uint32_t retry_after_ms = 0);

}  // namespace outrider::gateway
