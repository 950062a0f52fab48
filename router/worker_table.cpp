#include "router/worker_table.hpp"

#include <algorithm>

#include "base/limits.hpp"

namespace outrider::router {
namespace {

using std::chrono::milliseconds;

/// A heartbeat this much younger than a charge was taken after the request had arrived.
constexpr Duration k_charge_life = milliseconds(limits::heartbeat_interval_ms);
constexpr Duration k_late = milliseconds(limits::heartbeat_late_ms);
constexpr Duration k_silence_max = milliseconds(limits::heartbeat_timeout_ms);
constexpr size_t k_hints_remembered = 256;  ///< Workers, if no more are here.

}  // namespace

void WorkerTable::announce(const schema::Announce& announce, TimePoint now) {
  const auto found = workers_.find(announce.worker);
  if (found != workers_.end() && found->second.announce.incarnation != announce.incarnation) {
    remove(announce.worker);
  }
  WorkerView& worker = workers_[announce.worker];
  if (worker.place == 0) worker.place = ++joined_;
  worker.announce = announce;
  worker.heard = now;
  worker.is_late = false;
  if (worker.load.incarnation == announce.incarnation) return;
  worker.load = {};
  worker.load.incarnation = announce.incarnation;
  worker.load.blocks_free = announce.blocks_total;
  worker.load.blocks_total = announce.blocks_total;
}

bool WorkerTable::update(const schema::Load& load, TimePoint now) {
  const auto found = workers_.find(load.worker);
  if (found == workers_.end() || found->second.announce.incarnation != load.incarnation) {
    return false;
  }
  WorkerView& worker = found->second;
  worker.heard = now;
  worker.is_late = false;
  if (load.sequence <= worker.load.sequence) return true;
  worker.load = load;
  const uint32_t held = load.running + load.waiting + load.parked;
  worker.others_choices = held - std::min(held, worker.placed_most);
  worker.placed_most = worker.placed_choices;
  remember_hints(load);
  mark_reported(load.worker, now - k_charge_life);
  return true;
}

void WorkerTable::remember_hints(const schema::Load& load) {
  if (!load.hints) return;
  hints_.try_emplace({load.worker, load.incarnation}, Told{*load.hints, {}}).first->second.last =
      *load.hints;
  if (hints_.size() <= k_hints_remembered) return;
  const auto gone = std::ranges::find_if(hints_, [&](const auto& entry) {
    const auto worker = workers_.find(entry.first.first);
    return worker == workers_.end() || worker->second.announce.incarnation != entry.first.second;
  });
  if (gone == hints_.end()) return;  // All of them are here.
  hints_of_others_ += gone->second.last;
  hints_of_others_ -= gone->second.first;
  hints_.erase(gone);  // If it comes back, what it says then is its first word.
}

HintCounters WorkerTable::hints() const {
  HintCounters sum = hints_of_others_;
  for (const auto& [worker, told] : hints_) {
    sum += told.last;
    sum -= told.first;
  }
  return sum;
}

void WorkerTable::remove(uint64_t worker) {
  workers_.erase(worker);
  std::erase_if(charges_, [&](const Charge& charge) { return charge.worker == worker; });
}

std::vector<std::pair<std::string, Duration>> WorkerTable::find_late(TimePoint now) {
  std::vector<std::pair<std::string, Duration>> late;
  for (auto& [id, worker] : workers_) {
    const Duration silence = now - worker.heard;
    if (worker.is_late || silence <= k_late || silence > k_silence_max) continue;
    worker.is_late = true;
    late.emplace_back(worker.announce.name, silence);
  }
  return late;
}

std::vector<schema::Announce> WorkerTable::age_out(TimePoint now) {
  std::vector<schema::Announce> silent;
  for (const auto& [id, worker] : workers_) {
    if (now - worker.heard > k_silence_max) silent.push_back(worker.announce);
  }
  for (const schema::Announce& worker : silent) remove(worker.worker);
  return silent;
}

void WorkerTable::charge(const Charge& charge) {
  const auto found = workers_.find(charge.worker);
  if (found == workers_.end()) return;
  WorkerView& worker = found->second;
  worker.placed_choices += charge.choices;
  worker.placed_most = std::max(worker.placed_most, worker.placed_choices);
  worker.charged_choices += charge.choices;
  worker.charged_rows += charge.rows;
  charges_.push_back(charge);
}

template <class Which>
void WorkerTable::release_if(Which which) {
  std::erase_if(charges_, [&](const Charge& charge) {
    if (!which(charge.key)) return false;
    uncharge(charge);
    return true;
  });
}

void WorkerTable::release(RequestKey attempt) {
  release_if([&](RequestKey key) { return key == attempt; });
}

void WorkerTable::release_session(uint64_t session) {
  release_if([&](RequestKey key) { return key.session == session; });
}

std::vector<const WorkerView*> WorkerTable::candidates(const schema::PlaceRequest& request) const {
  std::vector<const WorkerView*> found;
  for (const auto& [id, worker] : workers_) {
    const schema::Announce& it = worker.announce;
    if (it.role != schema::Role::target || it.model != request.model) continue;
    if (worker.load.takes_none()) continue;
    if (!request.fingerprint.empty() && it.fingerprint != request.fingerprint) continue;
    if (request.prompt_tokens >= it.context_tokens) continue;
    found.push_back(&worker);
  }
  return found;
}

uint32_t WorkerTable::drafts_for(const schema::Announce& target) const {
  return static_cast<uint32_t>(std::ranges::count_if(workers_, [&](const auto& entry) {
    const schema::Announce& it = entry.second.announce;
    return it.role == schema::Role::draft && it.tokenizer == target.tokenizer &&
           it.incarnation != target.incarnation;
  }));
}

void WorkerTable::mark_reported(uint64_t worker, TimePoint made_until) {
  WorkerView& view = workers_.at(worker);
  for (Charge& charge : charges_) {
    if (charge.worker != worker || charge.at > made_until || charge.reported) continue;
    charge.reported = true;
    view.charged_choices -= charge.choices;
    view.charged_rows -= charge.rows;
  }
}

void WorkerTable::uncharge(const Charge& charge) {
  const auto found = workers_.find(charge.worker);
  if (found == workers_.end()) return;
  found->second.placed_choices -= charge.choices;
  if (charge.reported) return;
  found->second.charged_choices -= charge.choices;
  found->second.charged_rows -= charge.rows;
}

}  // namespace outrider::router
