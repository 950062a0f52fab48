#pragma once

#include <spdlog/logger.h>

#include <caf/actor_system.hpp>
#include <caf/typed_actor.hpp>
#include <chrono>
#include <memory>

#include "cluster/endpoint.hpp"
#include "cluster/wire.hpp"
#include "schema/handles.hpp"

namespace outrider::cluster {

/// Who is to know the router.
using RoutedHandle = caf::typed_actor<caf::reacts_to<schema::RouterFound>>;
using RouterLink = caf::typed_actor<caf::reacts_to<caf::tick_atom>>;

struct RouterLinkSetup {
  Wire* wire = nullptr;  ///< Outlives the link.
  Endpoint endpoint;
  RoutedHandle worker;
  std::shared_ptr<spdlog::logger> log;
};

/// Between tries to reach a router; where one is that does not let this process in, twice as long
/// each time, up to the second one.
inline constexpr std::chrono::milliseconds k_reconnect_interval{250};
inline constexpr std::chrono::milliseconds k_reconnect_interval_max{8'000};

/// Keeps a worker known to a router in another process: connects, tells the worker, watches, and
/// connects again when the router or the way to it is gone.
/// On a thread of its own, for connecting blocks. Ends with its worker, or when nobody holds it.
[[nodiscard]] RouterLink spawn_router_link(caf::actor_system& system, RouterLinkSetup setup);

}  // namespace outrider::cluster
