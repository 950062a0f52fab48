#pragma once

#include <caf/actor_system.hpp>
#include <memory>

#include "base/result.hpp"
#include "cluster/gate.hpp"
#include "schema/handles.hpp"

namespace outrider::cluster {

/// Carries the messages of an actor system over a gate's sockets: CAF itself neither listens nor
/// connects. Its system must have loaded CAF's middleman and must end after it.
class Wire {
 public:
  Wire(caf::actor_system& system, std::shared_ptr<Gate> gate);
  /// Nobody is let in any more; what is connected stays until the gate or the system goes.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Makes a router reachable for other processes; its port. Once.
  Result<uint16_t> publish(const schema::RouterHandle& router, const Endpoint& endpoint);
  /// The router that is published there. Blocks for the time that a gate may take to dial, and for
  /// CAF's own handshake.
  Result<schema::RouterHandle> reach(const Endpoint& endpoint);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace outrider::cluster
