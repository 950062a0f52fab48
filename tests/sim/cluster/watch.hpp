#pragma once

#include <caf/actor.hpp>
#include <map>
#include <string>

#include "tests/sim/cluster/cluster.hpp"
#include "tests/sim/cluster/faults.hpp"
#include "tests/sim/cluster/report.hpp"

namespace outrider::sim::cluster {

/// The invariants that need no client: blocks are conserved, queues are bounded, nobody who is dead
/// or hangs for longer than silence is noticed in is listed or leased, no target computes what
/// another one has taken over, none that leaves is told to stop before that, and in the end nothing
/// is left over.
class Watch {
 public:
  Watch(Cluster& cluster, const Faults& faults, const Clients& clients, Report& report,
        const Scenario& scenario);

  /// Once a second from now on.
  void begin();
  void on_send(const Parcel& parcel);
  /// Nothing is under way any more, and everybody has said so.
  void check_rest();

 private:
  void look();
  void check_blocks();
  void check_orphans();
  void check_cancel(const Parcel& parcel);
  void note_placed(ProcessId gateway, const schema::SubmitBegin& begin);
  bool hears_all(const Slot& slot, TimePoint since) const;
  void check_queues();
  void check_tiers();
  void check_sessions(uint32_t open);
  void ask_routers();
  void check_list(const schema::WorkerList& list);
  void check_list_at_rest(const schema::WorkerList& list);
  bool is_calm(const Slot& gateway) const;
  /// Dead or hanging, for longer than it may take to notice.
  bool is_long_silent(const caf::strong_actor_ptr& actor) const;

  Cluster& cluster_;
  const Faults& faults_;
  const Clients& clients_;
  Report& report_;
  const Scenario& scenario_;
  Duration notice_;  ///< A death is known everywhere after this.
  caf::actor observer_;
  /// Of sessions with one choice, the last attempt that was handed over.
  struct Placed {
    uint32_t generation = 0;  ///< 0: of several choices, which part.
    ProcessId gateway = 0;
    uint32_t taken = 0;     ///< The youngest that a target has let in.
    uint32_t given_up = 0;  ///< The youngest that one has rejected.
    TimePoint at{0};
  };
  std::map<uint64_t, Placed> placed_;
  bool is_at_rest_ = false;
  uint32_t open_sessions_ = 0;
  uint32_t lists_ = 0;
};

}  // namespace outrider::sim::cluster
