#include "actors/draft_actor.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <utility>

#include "base/limits.hpp"
#include "schema/survive.hpp"

namespace outrider::actors {
namespace {

constexpr auto k_draft_heartbeat = std::chrono::milliseconds(limits::heartbeat_interval_ms);

/// As limits::draft_branches_max counts.
size_t size_of(const schema::DraftHint& hint) {
  size_t size = hint.branches.size();
  for (const schema::DraftBranch& branch : hint.branches) size += branch.drawn_from.size();
  return size;
}

}  // namespace

DraftState::~DraftState() {
  for (const auto& [id, target] : targets_) engine_->give(TargetGone{id});
}

void DraftState::start(DraftActor::pointer self, DraftSetup setup) {
  self_ = self;
  announce_ = std::move(setup.announce);
  announce_.role = schema::Role::draft;
  announce_.draft = caf::actor_cast<schema::DraftHandle>(self);
  routers_ = KnownRouters(setup.routers);
  log_ = std::move(setup.log);
  schema::survive_unknown_messages(self_, [this](const caf::error& error) {
    log_->warn("{}: a message was not understood: {}", announce_.name,
               self_->system().render(error));
  });
  self_->set_down_handler([this](caf::down_msg& down) { lost(down.source); });
  // Weak, as a target's engine is: it must not keep its actor alive.
  engine_ = setup.engine([address = self->address()](DraftReplies replies) {
    const auto draft = caf::actor_cast<caf::actor>(address);
    if (draft) {
      caf::anon_send(draft, DraftReport{std::make_shared<DraftReplies>(std::move(replies))});
    }
  });
  join(setup.router, "");
  heartbeat();
}

void DraftState::join(const schema::RouterHandle& router, const std::string& gate) {
  if (!router) return;
  if (routers_.add(router, gate)) self_->monitor(router);
  self_->send(router, announce_);
}

void DraftState::announce() {
  for (const schema::RouterHandle& router : routers_.all()) self_->send(router, announce_);
}

void DraftState::open(const schema::DraftOpen& message) {
  if (!message.target) return;
  Target& target = targets_[message.key.target];
  target.opened = ++opens_;
  if (target.handle != message.target) {
    if (target.handle) {  // One that was restarted: what the first one had said is nobody's now.
      self_->demonitor(target.handle.address());
      engine_->give(TargetGone{message.key.target});
    }
    target.handle = message.target;
    self_->monitor(target.handle);
  }
  engine_->give(message);
  if (targets_.size() > limits::draft_targets_max) forget_oldest_target();
}

/// Not of each that ends is heard (DraftBeat).
void DraftState::forget_oldest_target() {
  const auto oldest =
      std::ranges::min_element(targets_, {}, [](const auto& entry) { return entry.second.opened; });
  self_->demonitor(oldest->second.handle.address());
  engine_->give(TargetGone{oldest->first});
  targets_.erase(oldest);
}

void DraftState::lost(const caf::actor_addr& actor) {
  if (routers_.remove(actor)) return;
  std::erase_if(targets_, [&](const auto& entry) {
    if (entry.second.handle.address() != actor) return false;
    engine_->give(TargetGone{entry.first});
    return true;
  });
}

template <class Message>
void DraftState::send(const schema::DraftKey& key, Message message) {
  const auto target = targets_.find(key.target);
  if (target != targets_.end()) self_->send(target->second.handle, std::move(message));
}

void DraftState::report(DraftReplies& replies) {
  if (!replies.error.empty() && !std::exchange(has_told_error_, true)) {
    log_->warn("{} cannot draft: {}", announce_.name, replies.error);
  }
  for (const schema::DraftReady& ready : replies.readies) send(ready.key, ready);
  for (const schema::DraftResync& resync : replies.resyncs) send(resync.key, resync);
  std::map<uint64_t, schema::DraftHints> messages;
  std::map<uint64_t, size_t> branches;
  for (schema::DraftHint& hint : replies.hints) {
    const schema::DraftKey key = hint.key;
    schema::DraftHints& message = messages[key.target];
    size_t& held = branches[key.target];
    if (message.hints.size() >= limits::draft_entries_max ||
        held + size_of(hint) > limits::draft_branches_max) {
      send(key, std::exchange(message, {}));
      held = 0;
    }
    held += size_of(hint);
    message.hints.push_back(std::move(hint));
  }
  for (auto& [target, message] : messages) {
    const schema::DraftKey key = message.hints.front().key;
    send(key, std::move(message));
  }
  for (const schema::DraftClose& close : replies.closes) send(close.key, close);
}

/// Whoever started it has to know when it serves nobody.
void DraftState::refused(const schema::Refusal& refusal) {
  const auto router = caf::actor_cast<caf::actor_addr>(self_->current_sender());
  const std::string by = routers_.name_of(router);
  const bool by_all = routers_.refused_by(router);
  log_->error("{} is refused by {}{}: {}", announce_.name, by, by_all ? ", and stops" : "",
              refusal.message);
  if (by_all) self_->quit();
}

void DraftState::heartbeat() {
  const EngineSnapshot engine = engine_->snapshot();
  schema::Load load;
  load.worker = announce_.worker;
  load.incarnation = announce_.incarnation;
  load.sequence = ++heartbeats_;
  load.running = engine.stats.running;
  load.waiting = engine.stats.waiting;
  load.parked = engine.stats.parked;
  load.blocks_free = engine.stats.blocks_free;
  load.blocks_total = engine.stats.blocks_total;
  load.rows_per_s = engine.rows_per_s;
  load.draft_runs = engine_->runs();
  if (load.draft_runs > 0) engine_->give(DraftBeat{});
  for (const schema::RouterHandle& router : routers_.all()) self_->send(router, load);
  self_->delayed_send(caf::actor_cast<DraftActor>(self_), k_draft_heartbeat, caf::tick_atom_v);
}

DraftActor::behavior_type DraftState::make_behavior() {
  return {
      [this](const schema::DraftOpen& message) { open(message); },
      [this](const schema::DraftCommits& message) { engine_->give(message); },
      [this](const schema::DraftClose& message) { engine_->give(message); },
      [this](const schema::AnnounceAgain&) { announce(); },
      [this](const schema::WorkerRefused& message) { refused(message.refusal); },
      [this](const DraftReport& message) { report(*message.replies); },
      [this](caf::tick_atom) { heartbeat(); },
      [this](const schema::RouterFound& found) { join(found.router, found.gate); },
  };
}

DraftActor::behavior_type draft_actor(DraftActor::stateful_pointer<DraftState> self,
                                      DraftSetup setup) {
  self->state.start(self, std::move(setup));
  return self->state.make_behavior();
}

}  // namespace outrider::actors
