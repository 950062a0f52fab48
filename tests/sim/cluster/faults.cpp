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
/// Of what stalls or hangs where a rock is, so much does it for ever.
constexpr float k_for_ever = 0.3f;
constexpr uint32_t k_hunts = 4;
/// Where blocks are handed over, so many of the targets' faults are that they leave; where stores
/// are, their disks.
constexpr float k_leaves = 0.5f;
constexpr float k_disks = 0.3f;
/// A target has joined again, and a session has found it.
constexpr milliseconds k_settled{1'500};
/// Within less than the shortest pauses between all of its tries, and what happens four times a
/// second, no session gives up.
constexpr milliseconds k_patience_min{3'250};

}  // namespace

Duration Faults::some_ms(uint32_t least, uint32_t most) {
  return milliseconds(random_.between(least, most));
}

bool Faults::is_safe(size_t index) const {
  const Slot& slot = cluster_.slots()[index];
  if (!scenario_.has_rock || slot.kind == Kind::draft) return false;
  return slot.kind != Kind::target || slot.number == 0;
}

bool Faults::stands(size_t index) const {
  const Slot& slot = cluster_.slots()[index];
  if (!slot.up() || cluster_.paused(index) || slot.hangs_since || slot.is_leaving) return false;
  const TimePoint troubled = std::max({calm_since_[index], cut_until_[index], slot.stalled_until});
  return cluster_.runtime().now() - troubled > k_settled;
}

void Faults::look() {
  const auto& slots = cluster_.slots();
  const TimePoint now = cluster_.runtime().now();
  bool has_target = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    has_target =
        has_target || (slots[i].kind == Kind::target && !slots[i].is_stranger && stands(i));
  }
  for (size_t i = 0; i < cluster_.gateways().size(); ++i) {
    if (has_target && stands(i)) stood_at_[i] = now;
  }
  clients_.note_ends([&](ProcessId gateway) {
    const Slot* slot = cluster_.slot_of(gateway);
    return slot != nullptr && now - stood_at_[cluster_.index_of(*slot)] < k_patience_min;
  });
  cluster_.runtime().time().after(milliseconds(250), [this] { look(); });
}

bool Faults::can_suffer(size_t index) const {
  const Slot& slot = cluster_.slots()[index];
  const bool runs = slot.up() && !cluster_.paused(index) && !slot.hangs_since;
  return runs && !slot.is_beyond_help && !is_safe(index);
}

size_t Faults::choose_victim() {
  std::vector<size_t> found;
  for (size_t i = 0; i < cluster_.slots().size(); ++i) {
    if (can_suffer(i)) found.push_back(i);
  }
  if (found.empty()) return cluster_.slots().size();
  return found[random_.below(static_cast<uint32_t>(found.size()))];
}

/// Of those that can leave; `otherwise`: none of them computes anything.
size_t Faults::busiest_target(size_t otherwise) const {
  size_t busiest = otherwise;
  size_t most = 0;
  for (size_t i = 0; i < cluster_.slots().size(); ++i) {
    const Slot& slot = cluster_.slots()[i];
    if (!can_suffer(i) || !slot.engine || slot.is_leaving) continue;
    const size_t has = slot.engine->wanted().size();
    if (has > most) busiest = i;
    most = std::max(most, has);
  }
  return busiest;
}

void Faults::strike() {
  const size_t victim = choose_victim();
  if (victim == cluster_.slots().size()) return;
  clients_.mishap();
  const bool is_target = cluster_.slots()[victim].kind == Kind::target;
  if (scenario_.has_lines && random_.chance(k_leaves)) return leave(busiest_target(victim));
  if (is_target && scenario_.has_stores && random_.chance(k_disks)) return spoil_disk(victim);
  const uint32_t dice = random_.below(18);
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
  if (dice < 14) return hang(victim);
  if (dice < 15) return slow_down(victim);
  if (dice < 17) return hunt();
  leave(victim);
}

void Faults::kill(size_t index) {
  report_.note("kill " + cluster_.slots()[index].name());
  before_end(index);
  cluster_.kill(index, random_.chance(0.5f));
  start_again(index);
}

/// Where it can: it runs.
void Faults::end(size_t index) {
  if (cluster_.paused(index) || cluster_.slots()[index].hangs_since) return kill(index);
  report_.note("end " + cluster_.slots()[index].name());
  before_end(index);
  cluster_.end(index);
  start_again(index);
}

void Faults::before_end(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  if (slot.engine && !slot.engine->stopped()) {
    if (const auto wrong = slot.engine->conserve(); !wrong.empty()) report_.violation(wrong);
  }
  if (slot.desk) clients_.before_kill(slot.process);
}

void Faults::start_again(size_t index) {
  cluster_.runtime().time().after(some_ms(100, 4'000), [this, index] {
    if (cluster_.slots()[index].up()) return;
    cluster_.start(index);
    report_.note("start " + cluster_.slots()[index].name());
    calm_since_[index] = cluster_.runtime().now();
  });
}

/// Who is impatient ends it by a second signal, or kills it.
void Faults::leave(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  if (slot.kind != Kind::target || slot.is_leaving) return kill(index);
  const bool is_patient = random_.chance(0.5f);
  report_.note((is_patient ? "leave " : "leave soon ") + slot.name());
  cluster_.leave(index, is_patient);
  if (is_patient) return end_when_left(index, slot.process);
  const bool in_order = random_.chance(0.5f);
  cluster_.runtime().time().after(some_ms(10, 2 * limits::hand_over_ms),
                                  [this, index, in_order, process = slot.process] {
                                    if (cluster_.slots()[index].process != process) return;
                                    in_order ? end(index) : kill(index);
                                  });
}

void Faults::end_when_left(size_t index, ProcessId process) {
  cluster_.runtime().time().after(milliseconds(100), [this, index, process] {
    const Slot& slot = cluster_.slots()[index];
    if (slot.process != process) return;
    if (!slot.engine->stopped()) return end_when_left(index, process);
    end(index);
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

void Faults::cut_for(const Slot& from, const Slot& to, Duration time) {
  const TimePoint until = cluster_.runtime().now() + time;
  for (const Slot* end : {&from, &to}) {
    TimePoint& latest = cut_until_[cluster_.index_of(*end)];
    latest = std::max(latest, until);
  }
  cluster_.network().cut(from.process, to.process);
  cluster_.runtime().time().after(time, [this, one = from.process, other = to.process] {
    cluster_.network().mend(one, other);
  });
}

void Faults::cut(size_t one, size_t other) {
  const Slot& from = cluster_.slots()[one];
  const Slot& to = cluster_.slots()[other];
  if (!to.up()) return;
  const bool both = random_.chance(0.5f);
  const bool back = !both && random_.chance(0.5f);
  report_.note("cut " + from.name() + (both ? " <-> " : back ? " <- " : " -> ") + to.name());
  const Duration time = some_ms(100, 7'000);
  if (!back) cut_for(from, to, time);
  if (both || back) cut_for(to, from, time);
}

void Faults::isolate(size_t index) {
  const Slot& alone = cluster_.slots()[index];
  report_.note("isolate " + alone.name());
  const Duration time = some_ms(500, 7'000);
  for (const Slot& other : cluster_.slots()) {
    if (!other.up() || &other == &alone) continue;
    cut_for(alone, other, time);
    cut_for(other, alone, time);
  }
}

void Faults::stall(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  report_.note("stall " + slot.name());
  const bool can_last = scenario_.has_rock && slot.engine && !slot.is_leaving;  // Else it ends.
  if (can_last && random_.chance(k_for_ever)) {
    cluster_.give_up(index);
    return cluster_.stall(index, std::chrono::hours(1));
  }
  cluster_.stall(index, some_ms(500, 15'000));
}

void Faults::slow_down(size_t index) {
  report_.note("slow " + cluster_.slots()[index].name());
  cluster_.slow_down(index, 2 + random_.below(20));
}

/// Of a gateway it would be all the same to its clients as a pause.
void Faults::hang(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  if (slot.kind == Kind::gateway) return pause(index);
  report_.note("hang " + slot.name());
  cluster_.hang(index);
  if (scenario_.has_rock && random_.chance(k_for_ever)) return cluster_.give_up(index);
  cluster_.runtime().time().after(some_ms(100, 15'000), [this, index, process = slot.process] {
    const Slot& it = cluster_.slots()[index];
    if (it.process != process || !it.hangs_since) return;
    report_.note(it.name() + " goes on");
    cluster_.go_on(index);
    calm_since_[index] = cluster_.runtime().now();
  });
}

void Faults::spoil_disk(size_t index) {
  const Slot& slot = cluster_.slots()[index];
  const bool fails = random_.chance(0.3f);
  report_.note("the disk of " + slot.name() + (fails ? " fails" : " is slow"));
  cluster_.set_disk(index, some_ms(50, 8'000), fails);
  cluster_.runtime().time().after(some_ms(500, 8'000),
                                  [this, index] { cluster_.set_disk(index, Disk().most, false); });
}

/// Wherever this session is placed next, somebody is killed.
void Faults::hunt() {
  hunted_ = clients_.one_that_waits();
  hunts_left_ = hunted_ == 0 ? 0 : k_hunts;
  if (hunted_ != 0) report_.note("hunt session " + std::to_string(hunted_));
}

void Faults::on_send(const Parcel& parcel) {
  if (hunts_left_ == 0 || content_of<schema::SubmitBegin>(parcel.content) == nullptr) return;
  if (key_of(parcel.content)->session != hunted_) return;
  const Slot* slot = cluster_.slot_of(parcel.to);
  if (slot == nullptr || is_safe(cluster_.index_of(*slot))) return;
  --hunts_left_;
  cluster_.runtime().time().after(some_ms(0, 50), [this, process = parcel.to] {
    const Slot* prey = cluster_.slot_of(process);
    if (prey == nullptr) return;
    clients_.mishap();
    kill(cluster_.index_of(*prey));
  });
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
  hunts_left_ = 0;
  std::ranges::fill(calm_since_, cluster_.runtime().now());  // who goes on acts at once
  cluster_.heal();
  for (TimePoint& until : cut_until_) until = std::min(until, cluster_.runtime().now());
}

}  // namespace outrider::sim::cluster
