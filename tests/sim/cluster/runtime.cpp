#include "tests/sim/cluster/runtime.hpp"

#include <algorithm>
#include <caf/scheduled_actor.hpp>
#include <caf/send.hpp>

namespace outrider::sim::cluster {

ProcessId Runtime::begin_process() {
  claim(0);
  states_.emplace_back();
  return static_cast<ProcessId>(states_.size() - 1);
}

ProcessId Runtime::home(caf::actor_id actor) const {
  return actor < homes_.size() ? homes_[actor] : 0;
}

void Runtime::claim(ProcessId process) {
  homes_.resize(system_.latest_actor_id() + 1, process);
}

void Runtime::kill(ProcessId process) {
  State& state = states_.at(process);
  if (!state.alive) return;
  state.alive = false;
  state.paused = false;
  state.hangs = false;
  state.died = now();
  end_actors(process);
}

void Runtime::end_actors(ProcessId process) {
  for (const caf::strong_actor_ptr& actor : std::exchange(states_.at(process).roots, {})) {
    caf::anon_send_exit(caf::actor_cast<caf::actor>(actor), caf::exit_reason::kill);
  }
  run_actors();
}

bool Runtime::run_one() {
  auto& jobs = scheduler_.jobs;
  for (auto job = jobs.begin(); job != jobs.end(); ++job) {
    const auto* actor = dynamic_cast<caf::scheduled_actor*>(*job);
    const ProcessId process = actor == nullptr ? 0 : home(actor->id());
    if (states_[process].paused || states_[process].hangs) continue;
    if (job != jobs.begin()) std::rotate(jobs.begin(), job, job + 1);
    scheduler_.run_once();
    claim(process);
    return true;
  }
  return false;
}

void Runtime::run_actors() {
  while (run_one()) {
  }
}

void Runtime::stop() {
  time_.clear();
  for (ProcessId process = 0; process < states_.size(); ++process) kill(process);
}

}  // namespace outrider::sim::cluster
