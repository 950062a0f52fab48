#pragma once

#include <kj/timer.h>

#include "gateway/http_settings.hpp"
#include "gateway/serving.hpp"
#include "schema/outrider.capnp.h"

namespace outrider::gateway {

/// What a connection gets before it has shown a key. One per connection.
kj::Own<rpc::Login::Server> new_login(Serving& serving, kj::Timer& timer,
                                      const HttpSettings& settings);

/// An Error as an RPC client sees it: an exception whose text is HTTP's JSON error object.
kj::Exception rpc_exception(const Error& error, uint32_t retry_after_ms = 0);

}  // namespace outrider::gateway
