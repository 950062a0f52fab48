#include "tests/sim/cluster/network.hpp"

#include <algorithm>
#include <caf/make_actor.hpp>
#include <caf/node_id.hpp>
#include <string>
#include <vector>

#include "base/limits.hpp"
#include "schema/messages.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds k_silence_max{limits::heartbeat_timeout_ms};
/// Silence is noticed at the next heartbeat.
constexpr uint32_t k_notice_ms = limits::heartbeat_interval_ms;

caf::node_id node_of(ProcessId process) {
  return *caf::make_node_id(process, std::string(40, 'a'));
}

}  // namespace

Duration Network::travel_time() {
  return Duration(random_.between(travel_.least.count(), travel_.most.count()));
}

bool Network::reaches(ProcessId from, ProcessId to) const {
  if (from == to) return runtime_.alive(from);
  const auto found = connections_.find(pair_of(from, to));
  if (found != connections_.end()) return found->second.ends[end_of(from, to)].open;
  const auto can_talk = [&](ProcessId one) { return runtime_.alive(one) && !runtime_.paused(one); };
  return can_talk(from) && can_talk(to) && !is_cut(from, to) && !is_cut(to, from);
}

bool Network::carries(ProcessId from, ProcessId to) const {
  const auto runs = [&](ProcessId one) { return runtime_.alive(one) && !runtime_.paused(one); };
  return runs(from) && runs(to) && !is_cut(from, to);
}

bool Network::connect(ProcessId from, ProcessId to) {
  if (!reaches(from, to)) return false;
  const Pair pair = pair_of(from, to);
  const auto [found, is_new] = connections_.try_emplace(pair);
  if (!is_new) return true;
  found->second.serial = ++serials_;
  found->second.ends[0].process = pair.first;
  found->second.ends[1].process = pair.second;
  return true;
}

caf::strong_actor_ptr Network::view(ProcessId viewer, const caf::strong_actor_ptr& actor) {
  if (!actor) return nullptr;
  const caf::actor_id id = actor->id();
  const ProcessId home = runtime_.home(id);
  if (home == viewer) return actor;
  if (const auto known = proxies_.find({viewer, id}); known != proxies_.end()) return known->second;
  caf::actor_config config;
  auto proxy = caf::make_actor<Proxy, caf::strong_actor_ptr>(id, node_of(home), &runtime_.system(),
                                                             config, *this, viewer, actor);
  if (!connect(viewer, home)) {
    static_cast<Proxy*>(proxy->get())
        ->kill_proxy(nullptr, caf::make_error(caf::exit_reason::remote_link_unreachable));
    return proxy;
  }
  proxies_.emplace(std::pair(viewer, id), proxy);
  if (watched_.insert(id).second) {
    actor->get()->attach_functor([this, id, home] { ended(id, home); });
  } else if (gone_.contains(id)) {
    ended(id, home);
  }
  return proxy;
}

/// All that still see it are told.
void Network::ended(caf::actor_id actor, ProcessId home) {
  gone_.insert(actor);
  if (!runtime_.alive(home)) return;  // Its connections say so.
  for (auto& [pair, connection] : connections_) {
    if (pair.first != home && pair.second != home) continue;
    const ProcessId viewer = pair.first == home ? pair.second : pair.first;
    if (!proxies_.contains({viewer, actor})) continue;
    Item item;
    item.kind = Item::Kind::ended;
    item.actor = actor;
    push(pair, end_of(viewer, home), std::move(item));
  }
}

void Network::send(const Proxy& by, caf::mailbox_element& what) {
  if (!runtime_.alive(by.viewer())) return;
  Parcel parcel;
  parcel.from = by.viewer();
  parcel.to = runtime_.home(by.actor()->id());
  parcel.sender = actor_behind(what.sender);
  parcel.receiver = by.actor();
  parcel.id = what.mid;
  parcel.content = exchange_handles(what.move_content_to_message(), actor_behind);
  ++sent_;
  if (on_send && !on_send(parcel)) return;
  const Pair pair = pair_of(parcel.from, parcel.to);
  const size_t end = end_of(parcel.to, parcel.from);
  if (by.dead() || random_.chance(travel_.lost)) return lose(parcel);
  Item item;
  item.parcel = std::move(parcel);
  if (random_.chance(travel_.repeated)) {
    if (on_damage) on_damage(item.parcel);
    push(pair, end, item);
  }
  push(pair, end, std::move(item));
}

void Network::push(Pair pair, size_t end, Item item) {
  const auto found = connections_.find(pair);
  const bool is_open =
      found != connections_.end() && found->second.ends[0].open && found->second.ends[1].open;
  const bool can_close = item.kind == Item::Kind::closed && found != connections_.end() &&
                         found->second.ends[end].open;
  if (!is_open && !can_close) {
    if (item.kind == Item::Kind::message) lose(item.parcel);
    return;
  }
  End& there = found->second.ends[end];
  std::deque<Item>& in = there.in;
  item.due = std::max(runtime_.now() + travel_time(), there.last_due);
  const bool is_late = item.kind == Item::Kind::message && random_.chance(travel_.late);
  if (is_late) {
    item.due += Duration(random_.between(0, travel_.late_most.count()));
    if (on_damage) on_damage(item.parcel);
  } else {
    there.last_due = item.due;
  }
  const Duration delay = item.due - runtime_.now();
  const auto at =
      std::upper_bound(in.begin(), in.end(), item.due,
                       [](TimePoint due, const Item& other) { return due < other.due; });
  in.insert(at, std::move(item));
  runtime_.time().after(delay, [this, pair, end] { pump(pair, end); });
}

/// Hands over what has arrived at this end.
void Network::pump(Pair pair, size_t end) {
  while (true) {
    const auto found = connections_.find(pair);
    if (found == connections_.end()) return;
    End& here = found->second.ends[end];
    const ProcessId other = found->second.ends[1 - end].process;
    if (here.in.empty() || here.in.front().due > runtime_.now()) return;
    if (is_cut(other, here.process) || runtime_.paused(here.process)) return;
    const Item item = std::move(here.in.front());
    here.in.pop_front();
    switch (item.kind) {
      case Item::Kind::message:
        deliver(item.parcel);
        break;
      case Item::Kind::ended: {
        const auto proxy = proxies_.extract(std::pair(here.process, item.actor));
        if (proxy.empty()) break;
        static_cast<Proxy*>(proxy.mapped()->get())
            ->kill_proxy(nullptr, caf::make_error(caf::exit_reason::normal));
        break;
      }
      case Item::Kind::closed:
        return notice_close(pair, end);
    }
  }
}

void Network::deliver(const Parcel& parcel) {
  if (!runtime_.alive(parcel.to)) return;
  if (on_arrival) on_arrival(parcel);
  const auto see = [&](const caf::strong_actor_ptr& actor) { return view(parcel.to, actor); };
  auto content = exchange_handles(parcel.content, see);
  parcel.receiver->enqueue(see(parcel.sender), parcel.id, std::move(content), nullptr);
}

void Network::lose(const Parcel& parcel) {
  if (on_loss) on_loss(parcel);
}

void Network::clear(End& end) {
  for (const Item& item : std::exchange(end.in, {})) {
    if (item.kind == Item::Kind::message) lose(item.parcel);
  }
}

/// This end gives up; the other one hears of it if it can.
void Network::close(Pair pair, size_t end) {
  const auto found = connections_.find(pair);
  if (found == connections_.end()) return;
  End& here = found->second.ends[end];
  const ProcessId other = found->second.ends[1 - end].process;
  here.open = false;
  clear(here);
  Item item;
  item.kind = Item::Kind::closed;
  push(pair, 1 - end, std::move(item));
  const bool is_over = !found->second.ends[1 - end].open;
  end_proxies(here.process, other);
  if (is_over) connections_.erase(pair);
}

void Network::notice_close(Pair pair, size_t end) {
  const auto found = connections_.find(pair);
  End& here = found->second.ends[end];
  const ProcessId other = found->second.ends[1 - end].process;
  here.open = false;
  clear(here);
  clear(found->second.ends[1 - end]);
  const ProcessId self = here.process;
  connections_.erase(found);
  end_proxies(self, other);
}

void Network::end_proxies(ProcessId viewer, ProcessId home) {
  std::vector<caf::strong_actor_ptr> ending;
  std::erase_if(proxies_, [&](const auto& entry) {
    if (entry.first.first != viewer || runtime_.home(entry.first.second) != home) return false;
    ending.push_back(entry.second);
    return true;
  });
  for (const caf::strong_actor_ptr& proxy : ending) {
    static_cast<Proxy*>(proxy->get())
        ->kill_proxy(nullptr, caf::make_error(caf::exit_reason::remote_link_unreachable));
  }
}

void Network::kill(ProcessId process, bool in_flight) {
  runtime_.kill(process);
  std::vector<Pair> pairs;
  for (const auto& [pair, connection] : connections_) {
    if (pair.first == process || pair.second == process) pairs.push_back(pair);
  }
  for (const Pair& pair : pairs) {
    const size_t end = pair.first == process ? 0 : 1;
    End& other = connections_.at(pair).ends[1 - end];
    if (!in_flight && other.open) {
      std::deque<Item> kept;
      for (Item& item : other.in) {
        if (item.kind == Item::Kind::message) {
          lose(item.parcel);
        } else {
          kept.push_back(std::move(item));
        }
      }
      other.in = std::move(kept);
    }
    close(pair, end);
  }
  review();
}

void Network::shake(float chance) {
  std::vector<Pair> pairs;
  for (const auto& [pair, connection] : connections_) {
    if (random_.chance(chance)) pairs.push_back(pair);
  }
  for (const Pair& pair : pairs) {
    const size_t end = random_.below(2);
    if (connections_.at(pair).ends[end].open) close(pair, end);
  }
}

void Network::cut(ProcessId from, ProcessId to) {
  cuts_.insert({from, to});
  review();
}

void Network::mend(ProcessId from, ProcessId to) {
  cuts_.erase({from, to});
  review();
}

void Network::heal(Travel travel) {
  cuts_.clear();
  travel_ = travel;
  review();
}

void Network::pause(ProcessId process) {
  runtime_.set_paused(process, true);
  review();
}

/// What arrived meanwhile is looked at before it is asked how long it took.
void Network::resume(ProcessId process) {
  runtime_.set_paused(process, false);
  for (auto& [pair, connection] : connections_) {
    for (End& end : connection.ends) {
      if (end.process == process) end.mute_since.reset();
    }
  }
  review();
}

void Network::review() {
  for (auto& [pair, connection] : connections_) {
    for (size_t i = 0; i < 2; ++i) {
      End& end = connection.ends[i];
      const ProcessId other = connection.ends[1 - i].process;
      const bool is_mute =
          is_cut(other, end.process) || runtime_.paused(other) || !runtime_.alive(other);
      if (!is_mute) {
        end.mute_since.reset();
      } else if (!end.mute_since) {
        end.mute_since = runtime_.now();
        const Duration wait = k_silence_max + milliseconds(random_.below(k_notice_ms));
        runtime_.time().after(
            wait, [this, where = pair, i, serial = connection.serial, since = runtime_.now()] {
              check_silence(where, i, serial, since);
            });
      }
      if (!end.in.empty()) {
        runtime_.time().after(Duration{0}, [this, where = pair, i] { pump(where, i); });
      }
    }
  }
}

void Network::check_silence(Pair pair, size_t end, uint64_t serial, TimePoint since) {
  const auto found = connections_.find(pair);
  if (found == connections_.end() || found->second.serial != serial) return;
  const End& here = found->second.ends[end];
  if (!here.open || here.mute_since != since) return;
  if (!runtime_.alive(here.process) || runtime_.paused(here.process)) return;
  close(pair, end);
}

size_t Network::in_flight() const {
  size_t count = 0;
  for (const auto& [pair, connection] : connections_) {
    count += connection.ends[0].in.size() + connection.ends[1].in.size();
  }
  return count;
}

}  // namespace outrider::sim::cluster
