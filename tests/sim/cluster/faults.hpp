#pragma once

#include <functional>
#include <vector>

#include "tests/sim/cluster/clients.hpp"
#include "tests/sim/cluster/cluster.hpp"
#include "tests/sim/cluster/report.hpp"

namespace outrider::sim::cluster {

/// What goes wrong: kills with a restart, targets that are asked to stop, pauses, cut ways (one or
/// both), engines that stall, leaps of the clock. Where the scenario has a rock, nothing of it to
/// gateways, the first target and the ways between them; but the clock leaps for all.
class Faults {
 public:
  Faults(Cluster& cluster, Clients& clients, Report& report, Random& random,
         const Scenario& scenario)
      : cluster_(cluster),
        clients_(clients),
        report_(report),
        random_(random),
        scenario_(scenario),
        calm_since_(cluster.slots().size()) {}

  void strike();
  /// Since when the slot's process has run, and time with it.
  TimePoint calm_since(size_t slot) const { return calm_since_[slot]; }
  void heal();

 private:
  bool is_safe(size_t slot) const;
  /// A slot that is up; its number is slots().size() if there is none.
  size_t choose_victim();
  void kill(size_t slot);
  void leave(size_t slot);
  void pause(size_t slot);
  void cut(size_t one, size_t other);
  void isolate(size_t slot);
  void stall(size_t slot);
  void leap();
  Duration some_ms(uint32_t least, uint32_t most);
  void mend_later(ProcessId from, ProcessId to, Duration after);

  Cluster& cluster_;
  Clients& clients_;
  Report& report_;
  Random& random_;
  const Scenario& scenario_;
  std::vector<TimePoint> calm_since_;  ///< By slot.
};

}  // namespace outrider::sim::cluster
