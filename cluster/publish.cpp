#include "cluster/publish.hpp"

#include <caf/io/middleman.hpp>

#include "schema/messages.hpp"

namespace outrider::cluster {

Result<uint16_t> publish(caf::actor_system& system, const schema::RouterHandle& router,
                         const Endpoint& endpoint) {
  const char* host = endpoint.host.empty() ? nullptr : endpoint.host.c_str();
  const auto port = system.middleman().publish(router, endpoint.port, host, true);
  if (port) return *port;
  return fail(ErrorCode::unavailable, "cannot listen on " + to_string(endpoint) +
                                          ": it is in use, or no address of this machine (" +
                                          system.render(port.error()) + ")");
}

}  // namespace outrider::cluster
