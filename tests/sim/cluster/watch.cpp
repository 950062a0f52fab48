#include "tests/sim/cluster/watch.hpp"

#include <algorithm>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <set>

#include "base/limits.hpp"
#include "tests/sim/cluster/clients.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds k_slack{10};
/// Messages on the way at once: a request of four choices has a few in each direction, and a way
/// that is cut for seconds holds what was said meanwhile.
constexpr size_t k_in_flight_max = 20'000;

caf::strong_actor_ptr behind(const schema::TargetHandle& handle) {
  return actor_behind(caf::actor_cast<caf::strong_actor_ptr>(handle));
}
caf::strong_actor_ptr behind(const schema::DraftHandle& handle) {
  return actor_behind(caf::actor_cast<caf::strong_actor_ptr>(handle));
}

}  // namespace

Watch::Watch(Cluster& cluster, const Faults& faults, const Clients& clients, Report& report,
             const Scenario& scenario)
    : cluster_(cluster),
      faults_(faults),
      clients_(clients),
      report_(report),
      scenario_(scenario),
      notice_(milliseconds(limits::heartbeat_timeout_ms + limits::heartbeat_interval_ms) +
              scenario.travel.most + scenario.travel.late_most + k_slack) {
  observer_ = cluster_.runtime().spawn(0, [this](caf::actor_system& system) {
    return system.spawn([this](caf::event_based_actor*) -> caf::behavior {
      return {[this](const schema::WorkerList& list) {
                ++lists_;
                check_list(list);
              },
              [this](const schema::SessionCount& count) { check_sessions(count.open); }};
    });
  });
}

void Watch::begin() {
  cluster_.runtime().time().after(seconds(1), [this] {
    look();
    begin();
  });
}

void Watch::look() {
  check_blocks();
  check_orphans();
  check_queues();
  ask_routers();
}

void Watch::check_blocks() {
  for (const Slot& slot : cluster_.slots()) {
    if (!slot.engine || slot.engine->stopped()) continue;
    const std::string wrong = slot.engine->conserve();
    if (!wrong.empty()) report_.violation(slot.name() + ": " + wrong);
  }
}

void Watch::note_placed(ProcessId gateway, const schema::SubmitBegin& begin) {
  const auto [found, is_new] = placed_.try_emplace(begin.key.session);
  Placed& placed = found->second;
  if (is_new ? begin.request.choices > 1 : placed.generation == 0) return;
  placed.generation = begin.key.generation;
  placed.gateway = gateway;
  placed.at = cluster_.runtime().now();
}

/// Whoever leaves goes on with what nobody else has yet.
void Watch::check_cancel(const Parcel& parcel) {
  const RequestKey key = *key_of(parcel.content);
  const Slot* slot = cluster_.slot_of(parcel.to);
  const Slot* gateway = cluster_.slot_of(parcel.from);
  const TimePoint now = cluster_.runtime().now();
  // Where messages are lost a session may take one that lives for silent.
  if (scenario_.is_hostile || slot == nullptr || gateway == nullptr || !slot->is_leaving) return;
  if (!hears_all(*slot, now) || !hears_all(*gateway, now)) return;
  if (slot->stalled_until > now) return;  // It has said so itself.
  const Placed& placed = placed_[key.session];
  if (placed.given_up >= key.generation) return;  // Likewise, and the step is over meanwhile.
  const auto wanted = slot->engine->wanted();
  const bool computes = std::ranges::find(wanted, key) != wanted.end();
  if (!computes || placed.generation == 0 || placed.taken > key.generation) return;
  if (clients_.may_be_over(key.session)) return;
  report_.violation(slot->name() + " leaves and is told to stop session " +
                    std::to_string(key.session) + ", which nobody else has");
}

/// For so long before that a connection would be over, if there was none.
bool Watch::hears_all(const Slot& slot, TimePoint since) const {
  const size_t index = cluster_.index_of(slot);
  return is_calm(slot) && !slot.hangs_since && faults_.calm_since(index) < since - notice_ &&
         faults_.cut_until(index) < since - notice_;
}

/// Whoever hears all that it is told does not compute what another one has taken over.
void Watch::check_orphans() {
  if (scenario_.is_hostile) return;  // Nobody says twice that it is to stop.
  const TimePoint now = cluster_.runtime().now();
  for (const Slot& slot : cluster_.slots()) {
    if (!slot.engine || slot.is_leaving) continue;
    for (const RequestKey key : slot.engine->wanted()) {
      const Placed& last = placed_[key.session];
      const Slot* gateway = cluster_.slot_of(last.gateway);
      const bool is_told = now - last.at > scenario_.travel.most + k_slack;
      if (last.generation <= key.generation || !is_told || gateway == nullptr) continue;
      if (!hears_all(slot, last.at) || !hears_all(*gateway, last.at)) continue;
      report_.violation(slot.name() + " computes what session " + std::to_string(key.session) +
                        " has elsewhere");
    }
  }
}

void Watch::check_queues() {
  if (const size_t count = cluster_.network().in_flight(); count > k_in_flight_max) {
    report_.violation(std::to_string(count) + " messages are on their way");
  }
  for (const Slot& slot : cluster_.slots()) {
    if (slot.desk) caf::send_as(observer_, slot.desk, schema::CountSessions{});
    if (slot.draft && slot.draft->runs() > limits::draft_runs_max) {
      report_.violation(slot.name() + " holds " + std::to_string(slot.draft->runs()) + " runs");
    }
  }
  check_tiers();
  cluster_.runtime().run_actors();
}

void Watch::check_tiers() {
  for (const Slot& slot : cluster_.slots()) {
    if (slot.store && slot.store->was_overfull()) {
      report_.violation(slot.name() + " was to store more than there was room for");
    }
  }
}

void Watch::check_sessions(uint32_t open) {
  open_sessions_ += open;
  if (open > scenario_.sessions_max) {
    report_.violation(std::to_string(open) + " sessions at one front desk");
  }
}

bool Watch::is_calm(const Slot& gateway) const {
  const size_t index = cluster_.index_of(gateway);
  if (!gateway.up() || cluster_.paused(index)) return false;
  return cluster_.runtime().now() - faults_.calm_since(index) > notice_;
}

bool Watch::is_long_silent(const caf::strong_actor_ptr& actor) const {
  if (!actor) return false;
  const ProcessId home = cluster_.runtime().home(actor->id());
  if (const Slot* slot = cluster_.slot_of(home); slot != nullptr && slot->hangs_since) {
    // What it said before may have been on its way for as long as a way was cut.
    const TimePoint since =
        std::max(*slot->hangs_since, faults_.cut_until(cluster_.index_of(*slot)));
    return cluster_.runtime().now() - since > notice_;
  }
  if (cluster_.runtime().alive(home)) return false;
  return cluster_.runtime().now() - cluster_.runtime().died(home) > notice_;
}

void Watch::ask_routers() {
  for (const Slot& gateway : cluster_.gateways()) {
    if (is_calm(gateway)) caf::send_as(observer_, gateway.router, schema::ListWorkers{});
  }
  cluster_.runtime().run_actors();
}

void Watch::check_list(const schema::WorkerList& list) {
  for (const schema::WorkerInfo& worker : list.workers) {
    if (is_long_silent(behind(worker.announce.target)) ||
        is_long_silent(behind(worker.announce.draft))) {
      report_.violation("a router lists " + worker.announce.name + ", which is dead or hangs");
    }
  }
  if (is_at_rest_) check_list_at_rest(list);
}

/// What routers grant, and whom sessions beside them turn to.
void Watch::on_send(const Parcel& parcel) {
  if (const auto* begin = content_of<schema::SubmitBegin>(parcel.content)) {
    note_placed(parcel.from, *begin);
  }
  if (const auto* accepted = content_of<schema::Accepted>(parcel.content)) {
    uint32_t& taken = placed_[accepted->key.session].taken;
    taken = std::max(taken, accepted->key.generation);
  }
  if (const auto* rejected = content_of<schema::Rejected>(parcel.content)) {
    uint32_t& given_up = placed_[rejected->key.session].given_up;
    given_up = std::max(given_up, rejected->key.generation);
  }
  if (content_of<schema::CancelRequest>(parcel.content) != nullptr) check_cancel(parcel);
  const Slot* from = cluster_.slot_of(parcel.from);
  if (from == nullptr || !from->router || !is_calm(*from)) return;
  caf::strong_actor_ptr promised;
  if (const auto* lease = content_of<schema::DraftLease>(parcel.content)) {
    promised = behind(lease->draft);
  } else if (content_of<schema::SubmitBegin>(parcel.content) != nullptr) {
    promised = parcel.receiver;  // placed just now
  }
  if (is_long_silent(promised)) report_.violation("a router leases one that is dead or hangs");
}

void Watch::check_rest() {
  is_at_rest_ = true;
  lists_ = 0;
  open_sessions_ = 0;
  look();
  const bool some_hang = std::ranges::any_of(
      cluster_.slots(), [](const Slot& slot) { return slot.hangs_since.has_value(); });
  for (const Slot& slot : cluster_.slots()) {
    if (slot.is_beyond_help) continue;
    if (slot.engine && !slot.engine->idle()) {
      report_.violation(slot.name() + " still has " + std::to_string(slot.engine->choices()) +
                        " choices");
    }
    // Those of a target that hangs go when others want their places.
    if (slot.draft && !some_hang && slot.draft->runs() != 0) {
      report_.violation(slot.name() + " still has " + std::to_string(slot.draft->runs()) + " runs");
    }
  }
  if (const size_t lines = cluster_.lines().open(); lines != 0 && !some_hang) {
    report_.violation(std::to_string(lines) + " lines are still there");
  }
  if (open_sessions_ != 0) {
    report_.violation(std::to_string(open_sessions_) + " sessions are still open");
  }
  if (lists_ != scenario_.gateways) report_.violation("a router does not answer");
}

void Watch::check_list_at_rest(const schema::WorkerList& list) {
  std::set<uint64_t> expected;
  std::set<uint64_t> beyond_help;  ///< What their engines had they have for ever.
  for (const Slot& slot : cluster_.slots()) {
    const bool works = slot.kind == Kind::target || slot.kind == Kind::draft;
    const bool may_join = !slot.is_stranger || scenario_.is_mixed;
    if (works && may_join && !slot.hangs_since) expected.insert(slot.worker);
    if (slot.is_beyond_help) beyond_help.insert(slot.worker);
  }
  for (const schema::WorkerInfo& worker : list.workers) {
    const std::string& name = worker.announce.name;
    if (expected.erase(worker.announce.worker) == 0) {
      report_.violation("a router lists " + name + ", who should not be there");
    }
    if (beyond_help.contains(worker.announce.worker)) continue;
    if (worker.charged_choices != 0) {
      report_.violation(name + " is still charged with " + std::to_string(worker.charged_choices) +
                        " choices");
    }
    const uint32_t held = worker.load.running + worker.load.waiting + worker.load.parked;
    if (worker.announce.role == schema::Role::target && held != 0) {
      report_.violation(name + " is thought to hold " + std::to_string(held) + " choices");
    }
  }
  if (!expected.empty()) report_.violation("a router lacks a worker that lives");
}

}  // namespace outrider::sim::cluster
