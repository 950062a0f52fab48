#pragma once

#include <functional>
#include <vector>

#include "tests/sim/cluster/clients.hpp"
#include "tests/sim/cluster/cluster.hpp"
#include "tests/sim/cluster/report.hpp"

namespace outrider::sim::cluster {

/// What goes wrong: kills with a restart, one session's targets killed one after another, targets
/// that are asked to stop, pauses, cut ways (one or both), engines that stall or slow down, workers
/// that hang, disks that are slow or fail, leaps of the clock. Where the scenario has a rock,
/// nothing of it to gateways, the first target and the ways between them; but the clock leaps for
/// all, and some workers stall or hang for ever.
class Faults {
 public:
  Faults(Cluster& cluster, Clients& clients, Report& report, Random& random,
         const Scenario& scenario)
      : cluster_(cluster),
        clients_(clients),
        report_(report),
        random_(random),
        scenario_(scenario),
        calm_since_(cluster.slots().size()),
        cut_until_(cluster.slots().size()),
        stood_at_(cluster.slots().size()) {}

  void strike();
  /// Before a message is sent.
  void on_send(const Parcel& parcel);
  /// Since when the slot's process has run, and time with it.
  TimePoint calm_since(size_t slot) const { return calm_since_[slot]; }
  /// Until when a way of it is, or was, cut.
  TimePoint cut_until(size_t slot) const { return cut_until_[slot]; }
  void heal();
  /// From now on, four times a second: which gateways have a target.
  void look();

 private:
  bool is_safe(size_t slot) const;
  /// For a while nothing has kept it from what it does.
  bool stands(size_t slot) const;
  /// A slot that is up; its number is slots().size() if there is none.
  bool can_suffer(size_t index) const;
  size_t choose_victim();
  size_t busiest_target(size_t otherwise) const;
  void kill(size_t slot);
  void end(size_t slot);
  void before_end(size_t slot);
  void start_again(size_t slot);
  void leave(size_t slot);
  void end_when_left(size_t slot, ProcessId process);
  void pause(size_t slot);
  void cut(size_t one, size_t other);
  void isolate(size_t slot);
  void stall(size_t slot);
  void slow_down(size_t slot);
  void hang(size_t slot);
  void spoil_disk(size_t slot);
  void hunt();
  void leap();
  Duration some_ms(uint32_t least, uint32_t most);
  void cut_for(const Slot& from, const Slot& to, Duration time);

  Cluster& cluster_;
  Clients& clients_;
  Report& report_;
  Random& random_;
  const Scenario& scenario_;
  std::vector<TimePoint> calm_since_;  ///< By slot.
  std::vector<TimePoint> cut_until_;   ///< The same.
  std::vector<TimePoint> stood_at_;    ///< By gateway: a target stood then, and so did it.
  uint64_t hunted_ = 0;                ///< A session.
  uint32_t hunts_left_ = 0;            ///< Of its targets, those that will be killed.
};

}  // namespace outrider::sim::cluster
