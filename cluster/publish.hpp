#pragma once

#include <caf/actor_system.hpp>
#include <cstdint>

#include "base/result.hpp"
#include "cluster/endpoint.hpp"
#include "schema/handles.hpp"

namespace outrider::cluster {

/// Lets other processes reach the router there; its system must have loaded CAF's middleman. The
/// port that it got (0 asks for any).
Result<uint16_t> publish(caf::actor_system& system, const schema::RouterHandle& router,
                         const Endpoint& endpoint);

}  // namespace outrider::cluster
