#include "tests/sim/cluster/faults.hpp"

#include <algorithm>
#include <chrono>
#include <string>

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// After a leap beyond what connections wait, each may break.
constexpr float k_breaks = 0.3f;

}  // namespace

Duration Faults::some_ms(uint32_t least, uint32_t most) {
  return milliseconds(random_.between(least, most));
}

bool Faults::is_safe(size_t index) const {
  const Slot& slot = cluster_.slots()[index];
  if (!scenario_.has_rock || slot.kind == Kind::draft) return false;
  return slot.kind != Kind::target || slot.number == 0;
}

size_t Faults::choose_victim() {
  std::vector<size_t> found;
  for (size_t i = 0; i < cluster_.slots().size(); ++i) {
    if (cluster_.slots()[i].up() && !cluster_.paused(i) && !is_safe(i)) found.push_back(i);
  }
  if (found.empty()) return cluster_.slots().size();
  return found[random_.below(static_cast<uint32_t>(found.size()))];
}

void Faults::strike() {
  const size_t victim = choose_victim();
  if (victim == cluster_.slots().size()) return;
  clients_.mishap();
  const uint32_t dice = random_.below(13);
  if (dice < 3) return kill(victim);
  if (dice < 5) return pause(victim);
  if (dice < 8) {
    const size_t other = random_.below(static_cast<uint32_t>(cluster_.slots().size()));
    if (other != victim) cut(victim, other);
    return;
  }
  if (dice < 9) return isolate(victim);
  if (dice < 11) return stall(victim);
  if (dice < 12) return leap();
  leave(victim);
}

void Faults::kill(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  report_.note("kill " + slot.name());
  if (slot.engine && !slot.engine->stopped()) {
    if (const auto wrong = slot.engine->conserve(); !wrong.empty()) report_.violation(wrong);
  }
  if (slot.desk) clients_.before_kill(slot.process);
  cluster_.kill(index, random_.chance(0.5f));
  cluster_.runtime().time().after(some_ms(100, 4'000), [this, index] {
    if (cluster_.slots()[index].up()) return;
    cluster_.start(index);
    report_.note("start " + cluster_.slots()[index].name());
    calm_since_[index] = cluster_.runtime().now();
  });
}

void Faults::leave(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  if (slot.kind != Kind::target || slot.is_leaving) return kill(index);
  report_.note("leave " + slot.name());
  cluster_.leave(index);
  cluster_.runtime().time().after(some_ms(10, 2 * limits::hand_over_ms),
                                  [this, index, process = slot.process] {
                                    if (cluster_.slots()[index].process == process) kill(index);
                                  });
}

void Faults::pause(size_t index) {
  report_.note("pause " + cluster_.slots()[index].name());
  cluster_.pause(index);
  const ProcessId process = cluster_.slots()[index].process;
  cluster_.runtime().time().after(some_ms(100, 6'000), [this, index, process] {
    if (cluster_.slots()[index].process != process || !cluster_.paused(index)) return;
    report_.note("resume " + cluster_.slots()[index].name());
    cluster_.resume(index);
    calm_since_[index] = cluster_.runtime().now();
  });
}

void Faults::mend_later(ProcessId from, ProcessId to, Duration after) {
  cluster_.runtime().time().after(after, [this, from, to] { cluster_.network().mend(from, to); });
}

void Faults::cut(size_t one, size_t other) {
  const Slot& from = cluster_.slots()[one];
  const Slot& to = cluster_.slots()[other];
  if (!to.up()) return;
  const bool both = random_.chance(0.5f);
  const bool back = !both && random_.chance(0.5f);
  report_.note("cut " + from.name() + (both ? " <-> " : back ? " <- " : " -> ") + to.name());
  const Duration time = some_ms(100, 7'000);
  if (!back) {
    cluster_.network().cut(from.process, to.process);
    mend_later(from.process, to.process, time);
  }
  if (both || back) {
    cluster_.network().cut(to.process, from.process);
    mend_later(to.process, from.process, time);
  }
}

void Faults::isolate(size_t index) {
  const Slot& alone = cluster_.slots()[index];
  report_.note("isolate " + alone.name());
  const Duration time = some_ms(500, 7'000);
  for (const Slot& other : cluster_.slots()) {
    if (!other.up() || &other == &alone) continue;
    cluster_.network().cut(alone.process, other.process);
    cluster_.network().cut(other.process, alone.process);
    mend_later(alone.process, other.process, time);
    mend_later(other.process, alone.process, time);
  }
}

void Faults::stall(size_t index) {
  report_.note("stall " + cluster_.slots()[index].name());
  cluster_.stall(index, some_ms(500, 15'000));
}

void Faults::leap() {
  const Duration by = some_ms(500, 8'000);
  report_.note("the clock leaps by " + std::to_string(to_ms(by)) + " ms");
  cluster_.runtime().time().leap(by);
  std::ranges::fill(calm_since_, cluster_.runtime().now());
  if (by > seconds(3)) cluster_.network().shake(k_breaks);
}

void Faults::heal() {
  report_.note("heal");
  cluster_.heal();
  std::ranges::fill(calm_since_, cluster_.runtime().now());
}

}  // namespace outrider::sim::cluster
