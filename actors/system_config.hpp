#pragma once

#include <caf/actor_system_config.hpp>
#include <cstdint>

namespace outrider::actors {

/// How CAF runs here: the shared work queue (the default, work stealing, sleeps between polls and
/// costs 0.2 ms a message between nodes), few threads (the engine needs the cores), our messages,
/// and heartbeats between nodes, which CAF leaves off.
class SystemConfig : public caf::actor_system_config {
 public:
  explicit SystemConfig(uint32_t threads = 2);
};

}  // namespace outrider::actors
