#pragma once

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "actors/system_config.hpp"
#include "tests/sim/cluster/timeline.hpp"

namespace outrider::sim::cluster {

/// One life of a process: its successor after a restart has another number. 0: nobody's.
using ProcessId = uint32_t;

/// The actors of all processes, on one thread and in virtual time. Who is spawned by whom says
/// which process an actor belongs to; a paused process runs none of its actors, a killed one loses
/// all of them. One that hangs runs none either, but its connections live, and so does its engine.
class Runtime {
 public:
  Runtime() = default;
  ~Runtime() { stop(); }

  caf::actor_system& system() { return system_; }
  Timeline& time() { return time_; }
  TimePoint now() const { return time_.now(); }

  ProcessId begin_process();
  /// What `make` spawns is of the process, and lives until the process is killed.
  template <class Spawn>
  auto spawn(ProcessId process, Spawn make) {
    auto actor = make(system_);
    claim(process);
    states_.at(process).roots.push_back(caf::actor_cast<caf::strong_actor_ptr>(actor));
    return actor;
  }
  ProcessId home(caf::actor_id actor) const;

  bool alive(ProcessId process) const { return states_.at(process).alive; }
  bool paused(ProcessId process) const { return states_.at(process).paused; }
  /// Of one that is dead.
  TimePoint died(ProcessId process) const { return states_.at(process).died; }
  void set_paused(ProcessId process, bool paused) { states_.at(process).paused = paused; }
  void set_hanging(ProcessId process, bool hangs) { states_.at(process).hangs = hangs; }
  /// Its actors end, and it is still there.
  void end_actors(ProcessId process);
  /// As `kill -9`: nothing that it does afterwards counts.
  void kill(ProcessId process);
  /// Until only paused processes have something to do.
  void run_actors();
  /// Ends all actors.
  void stop();

 private:
  struct Config : actors::SystemConfig {
    Config() { set("scheduler.policy", caf::atom("testing")); }
  };
  struct State {
    bool alive = true;
    bool paused = false;
    bool hangs = false;
    TimePoint died{0};
    std::vector<caf::strong_actor_ptr> roots;
  };

  bool run_one();
  /// Actors that were made since the last call are of this process.
  void claim(ProcessId process);

  Config config_;
  caf::actor_system system_{config_};
  caf::scheduler::test_coordinator& scheduler_ =
      dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  Timeline time_{scheduler_.clock()};
  std::vector<State> states_{State()};
  std::vector<ProcessId> homes_;  ///< By actor id.
};

}  // namespace outrider::sim::cluster
