#pragma once

#include <caf/actor_config.hpp>
#include <caf/actor_proxy.hpp>
#include <utility>

#include "tests/sim/cluster/parcel.hpp"

namespace outrider::sim::cluster {

class Network;

/// What a process sees of an actor of another one, as CAF's proxies of remote actors: takes any
/// message and passes it to the network, can be monitored, and ends with its actor or with the
/// connection between the two processes. Equal to any other proxy of the same actor.
class Proxy final : public caf::actor_proxy {
 public:
  Proxy(caf::actor_config& config, Network& network, ProcessId viewer, caf::strong_actor_ptr actor)
      : caf::actor_proxy(config), network_(network), viewer_(viewer), actor_(std::move(actor)) {}

  using caf::abstract_actor::enqueue;
  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  void kill_proxy(caf::execution_unit* context, caf::error reason) override;

  ProcessId viewer() const { return viewer_; }
  const caf::strong_actor_ptr& actor() const { return actor_; }
  bool dead() const { return is_dead_; }

 private:
  Network& network_;
  ProcessId viewer_;
  caf::strong_actor_ptr actor_;
  bool is_dead_ = false;
};

/// The actor behind a handle: its own if it is no proxy.
caf::strong_actor_ptr actor_behind(const caf::strong_actor_ptr& handle);
/// Whether nobody can be reached by it any more. Null counts as dead.
bool is_dead_proxy(const caf::strong_actor_ptr& handle);

}  // namespace outrider::sim::cluster
