#include "actors/system_config.hpp"

#include <caf/atom.hpp>
#include <caf/timespan.hpp>

#include "base/limits.hpp"
#include "schema/messages.hpp"

namespace outrider::actors {

SystemConfig::SystemConfig(uint32_t threads) {
  using std::chrono::milliseconds;
  schema::add_messages(*this);
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", static_cast<size_t>(threads));
  set("middleman.heartbeat-interval", caf::timespan(milliseconds(limits::heartbeat_interval_ms)));
  set("middleman.connection-timeout", caf::timespan(milliseconds(limits::heartbeat_timeout_ms)));
}

}  // namespace outrider::actors
