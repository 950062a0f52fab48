#pragma once

#include <caf/actor.hpp>
#include <string>

#include "tests/sim/cluster/cluster.hpp"
#include "tests/sim/cluster/faults.hpp"
#include "tests/sim/cluster/report.hpp"

namespace outrider::sim::cluster {

/// The invariants that need no client: blocks are conserved, queues are bounded, nobody who is dead
/// for longer than silence is noticed in is listed or leased, and in the end nothing is left over.
class Watch {
 public:
  Watch(Cluster& cluster, const Faults& faults, Report& report, const Scenario& scenario);

  /// Once a second from now on.
  void begin();
  void on_send(const Parcel& parcel);
  /// Nothing is under way any more, and everybody has said so.
  void check_rest();

 private:
  void look();
  void check_blocks();
  void check_queues();
  void check_sessions(uint32_t open);
  void ask_routers();
  void check_list(const schema::WorkerList& list);
  void check_list_at_rest(const schema::WorkerList& list);
  bool is_calm(const Slot& gateway) const;
  /// For longer than it may take to notice.
  bool is_long_dead(const caf::strong_actor_ptr& actor) const;

  Cluster& cluster_;
  const Faults& faults_;
  Report& report_;
  const Scenario& scenario_;
  Duration notice_;  ///< A death is known everywhere after this.
  caf::actor observer_;
  bool is_at_rest_ = false;
  uint32_t open_sessions_ = 0;
  uint32_t lists_ = 0;
};

}  // namespace outrider::sim::cluster
