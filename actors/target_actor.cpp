#include "actors/target_actor.hpp"

#include <caf/actor_clock.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <utility>

#include "base/limits.hpp"
#include "schema/survive.hpp"

namespace outrider::actors {
namespace {

constexpr auto k_heartbeat = std::chrono::milliseconds(limits::heartbeat_interval_ms);
/// Between two looks at what is left when it leaves, and how long nobody must have asked.
constexpr auto k_leave_look = std::chrono::milliseconds(20);
constexpr auto k_leave_quiet = std::chrono::milliseconds(500);

Error hanging() {
  return fail(ErrorCode::unavailable, "the worker's engine hangs");
}

}  // namespace

void TargetState::start(TargetActor::pointer self, TargetSetup setup) {
  self_ = self;
  announce_ = std::move(setup.announce);
  announce_.target = caf::actor_cast<schema::TargetHandle>(self);
  routers_ = KnownRouters(setup.routers);
  log_ = std::move(setup.log);
  leaves_within_ = setup.leaves_within;
  hangs_after_ = setup.hangs_after;
  setup.drafts.target = announce_.worker;
  setup.drafts.tokenizer = announce_.tokenizer;
  if (announce_.sequences > 0) setup.drafts.sequences = announce_.sequences;
  drafts_ = DraftFeed(std::move(setup.drafts));
  told_of_idle_drafts_ = setup.is_a_draft;
  schema::survive_unknown_messages(self_, [this](const caf::error& error) {
    log_->warn("{}: a message was not understood: {}", announce_.name,
               self_->system().render(error));
  });
  self_->set_down_handler([this](caf::down_msg& down) { lost(down.source); });
  // Weak: the engine must not keep its actor alive, nor reach into it from its own thread.
  engine_ = setup.engine([address = self->address()](EngineEvents events) {
    const auto target = caf::actor_cast<caf::actor>(address);
    if (target) {
      caf::anon_send(target, EngineReport{std::make_shared<EngineEvents>(std::move(events))});
    }
  });
  peers_ = std::move(setup.peers);
  giver_ = std::make_unique<BlockGiver>(engine_, std::move(setup.lines), log_);
  join(setup.router, "");
  heartbeat();
}

void TargetState::join(const schema::RouterHandle& router, const std::string& gate) {
  if (!router) return;
  const bool is_new = routers_.add(router, gate);
  if (is_new) self_->monitor(router);
  self_->send(router, announce_);
  if (heartbeats_ > 0) send_load();  // From here on it counts what this target does.
  if (is_new && routers_.is_first(router.address())) ask_again_for_drafts();
}

/// Another router leases them from now on, or the same one has forgotten what it leased.
void TargetState::ask_again_for_drafts() {
  drafts_.ask_again();
  send_drafts();
}

void TargetState::announce() {
  for (const schema::RouterHandle& router : routers_.all()) self_->send(router, announce_);
}

/// By a router that was restarted, or to which it was silent for too long.
void TargetState::forgotten() {
  announce();
  const auto router = caf::actor_cast<caf::actor_addr>(self_->current_sender());
  if (routers_.is_first(router)) ask_again_for_drafts();
}

/// Whoever started it has to know when it serves nobody.
void TargetState::refused(const schema::Refusal& refusal) {
  const auto router = caf::actor_cast<caf::actor_addr>(self_->current_sender());
  const bool leased_drafts = routers_.is_first(router);
  const std::string by = routers_.name_of(router);
  const bool by_all = routers_.refused_by(router);
  log_->error("{} is refused by {}{}: {}", announce_.name, by, by_all ? ", and stops" : "",
              refusal.message);
  if (by_all) return self_->quit();
  if (!leased_drafts) return;
  announce();  // the next one says how many drafts it has
  ask_again_for_drafts();
}

void TargetState::begin(const schema::SubmitBegin& message) {
  if (!message.session) return;
  if (records_.count(message.key) != 0) {
    self_->send(message.session, schema::Accepted{message.key});
    return;
  }
  if (const auto admitted = admit(message); !admitted) {
    return reject(message.session, message.key, admitted.error());
  }
  assemblies_.erase(message.key);
  assemblies_.emplace(message.key, PromptAssembly(message));
  adopt(message.key, message.session);
}

Result<void> TargetState::admit(const schema::SubmitBegin& message) const {
  if (leaves_by_) return fail(ErrorCode::unavailable, "the worker is leaving");
  if (hangs_) return hanging();
  const uint64_t tokens = uint64_t{message.prompt_tokens} + message.committed_tokens;
  if (tokens > announce_.context_tokens) {
    return fail(ErrorCode::too_large, "the prompt has " + std::to_string(tokens) +
                                          " tokens, the context " +
                                          std::to_string(announce_.context_tokens));
  }
  if (message.request.choices == 0 || message.request.choices > limits::choices_max) {
    return fail(ErrorCode::invalid_argument, "the number of choices is out of range", "n");
  }
  if (assemblies_.size() >= limits::target_assemblies_max ||
      records_.size() >= limits::target_requests_max + limits::finished_requests_kept) {
    return fail(ErrorCode::overloaded, "the worker holds too many requests");
  }
  return {};
}

void TargetState::part(const schema::PromptPart& message) {
  const auto found = assemblies_.find(message.key);
  if (found == assemblies_.end()) return;  // SubmitEnd says so.
  if (const auto added = found->second.add(message); !added) {
    reject(found->second.session(), message.key, added.error());
    drop(message.key);
  }
}

void TargetState::submit(RequestKey key) {
  const auto found = assemblies_.find(key);
  if (found == assemblies_.end()) return;  // Rejected before; a lost begin shows in the probe.
  const schema::SessionHandle session = found->second.session();
  auto request = found->second.finish();
  if (request) know_peer(found->second.begin(), *request);
  assemblies_.erase(found);
  Result<void> taken = request ? Result<void>() : Result<void>(request.error());
  if (taken) {
    records_.emplace(key, RequestRecord(session, *request));
    drafts_.begin(key, *request);
    taken = engine_->submit(key, std::move(*request));
  }
  if (!taken) {
    drafts_.forget(key);
    reject(session, key, taken.error());
    drop(key);
  }
  send_drafts();
}

/// Where what is missing of its blocks may be had.
void TargetState::know_peer(const schema::SubmitBegin& begin, GenerationRequest& request) {
  const schema::RouterHandle router = routers_.beside(begin.session);
  const auto gate = router ? routers_.gate_of(router) : std::nullopt;
  if (!peers_ || !gate || !begin.kv_target || begin.kv_worker == 0) return;
  peers_->know(begin.kv_worker, *gate, [target = begin.kv_target, router](LineName line) {
    caf::anon_send(target, schema::LineWanted{std::move(line), router});
  });
  request.kv_peer = begin.kv_worker;
  handed_over_[begin.key] = begin.kv_worker;
}

/// It computes by itself from now on, or not at all.
void TargetState::needs_no_peer(RequestKey key) {
  const auto found = handed_over_.find(key);
  if (found == handed_over_.end()) return;
  peers_->through(found->second);
  handed_over_.erase(found);
}

/// Only what the engine is through with may be dropped: it must never see a key twice.
void TargetState::cancel(RequestKey key) {
  const auto record = records_.find(key);
  if (record == records_.end() || record->second.done()) return drop(key);
  engine_->cancel(key);
  cancelled_.insert(key);
  drafts_.forget(key);  // at once: an engine that hangs would keep its draft's place
  send_drafts();
}

void TargetState::resend(const schema::Resend& message) {
  const auto session = caf::actor_cast<schema::SessionHandle>(self_->current_sender());
  if (!session) return;
  const auto record = records_.find(message.key);
  if (record == records_.end()) {
    // A session asks long after its SubmitEnd: parts still awaited will not come.
    reject(session, message.key, fail(ErrorCode::not_found, "the worker knows no such request"));
    return drop(message.key);
  }
  if (hangs_ && !record->second.done()) return reject(session, message.key, hanging());
  const auto missing = record->second.missing(message);
  for (const schema::Tokens& tokens : missing) self_->send(session, tokens);
  if (record->second.done()) {
    self_->send(session, record->second.done_message(message.key));
  } else if (missing.empty()) {
    self_->send(session, schema::Accepted{message.key});
  }
}

void TargetState::lost(const caf::actor_addr& actor) {
  const bool leased_drafts = routers_.is_first(actor);
  if (routers_.remove(actor)) {
    if (!leased_drafts) return;
    announce();  // the next one says how many drafts it has
    ask_again_for_drafts();
    return;
  }
  const auto found = sessions_.find(actor);
  if (found == sessions_.end()) return;
  // Forgotten before its requests have ended: a session that comes again over another connection
  // has an equal address, and needs a monitor of its own.
  const Keys keys = std::move(found->second);
  sessions_.erase(found);
  for (const RequestKey key : keys) cancel(key);
}

void TargetState::report(const EngineEvents& events) {
  for (const RequestKey key : events.accepted) {
    const auto record = records_.find(key);
    if (record != records_.end()) self_->send(record->second.session(), schema::Accepted{key});
  }
  for (const auto& [key, error] : events.rejected) {
    const auto record = records_.find(key);
    drafts_.forget(key);
    if (record == records_.end()) continue;
    reject(record->second.session(), key, error);
    drop(key);
  }
  for (const model::ChoiceUpdate& item : events.updates) update(item);
  drafts_.commit(events.updates, events.step);
  send_drafts();
}

template <class Message>
void TargetState::draft(const Message& message) {
  drafts_.take(message);
  send_drafts();
}

template <class Message>
void TargetState::draft_said(const Message& message) {
  const caf::actor_addr sender = caf::actor_cast<caf::actor_addr>(self_->current_sender());
  for (const auto& [worker, draft] : draft_handles_) {
    if (draft && draft.address() == sender) drafts_.heard(worker);
  }
  draft(message);
}

void TargetState::tell_of_idle_drafts(uint32_t drafts) {
  if (drafts == 0 || !drafts_.wants_none() || std::exchange(told_of_idle_drafts_, true)) return;
  log_->warn("{}: draft models have joined, but its setting spec keeps it from using them",
             announce_.name);
}

void TargetState::lease(const schema::DraftLease& lease) {
  std::erase_if(draft_handles_,
                [&](const auto& entry) { return !drafts_.has_leased(entry.first); });
  if (lease.draft) draft_handles_[lease.worker] = lease.draft;
  draft(lease);
}

void TargetState::send_drafts() {
  FeedOutbox outbox = drafts_.take_outbox();
  const auto self = caf::actor_cast<schema::TargetHandle>(self_);
  if (const schema::RouterHandle router = routers_.first()) {
    for (schema::LeaseDraft& ask : outbox.asks) {
      ask.reply_to = self;
      self_->send(router, std::move(ask));
    }
    for (const schema::EndLease& ended : outbox.ends) self_->send(router, ended);
  }
  for (auto& [worker, message] : outbox.to_drafts) {
    const schema::DraftHandle& draft = draft_handles_[worker];
    if (!draft) continue;
    if (auto* open = std::get_if<schema::DraftOpen>(&message)) open->target = self;
    std::visit([&](auto& content) { self_->send(draft, std::move(content)); }, message);
  }
  if (!outbox.hints.empty()) engine_->hint(std::move(outbox.hints));
  if (outbox.unleased > 0) engine_->count_hints(HintOutcome::no_lease, outbox.unleased);
}

void TargetState::update(const model::ChoiceUpdate& update) {
  const auto found = records_.find(update.key);
  if (found == records_.end()) return;
  RequestRecord& record = found->second;
  needs_no_peer(update.key);
  const auto messages = record.add(update);
  const bool cancelled = cancelled_.count(update.key) != 0;
  if (!cancelled) {
    for (const schema::Tokens& tokens : messages) self_->send(record.session(), tokens);
  }
  if (!record.done()) return;
  if (cancelled) return drop(update.key);
  self_->send(record.session(), record.done_message(update.key));
  expected_output_ +=
      (static_cast<int32_t>(record.output_tokens()) - static_cast<int32_t>(expected_output_)) / 8;
  finished_.push_back(update.key);
  if (finished_.size() > limits::finished_requests_kept) {
    const RequestKey oldest = finished_.front();
    finished_.pop_front();
    cancel(oldest);  // Drops it, if no DoneAck did; no generation is used twice.
  }
}

void TargetState::heartbeat() {
  look_at_step();
  send_load();
  drafts_.beat();
  send_drafts();
  self_->delayed_send(caf::actor_cast<TargetActor>(self_), k_heartbeat, caf::tick_atom_v);
}

void TargetState::send_load() {
  const EngineSnapshot engine = engine_->snapshot();
  schema::Load load;
  load.worker = announce_.worker;
  load.incarnation = announce_.incarnation;
  load.sequence = ++heartbeats_;
  load.running = engine.stats.running;
  load.waiting = engine.stats.waiting + engine.inbox;
  load.parked = engine.stats.parked;
  load.blocks_free = engine.stats.blocks_free;
  load.blocks_total = engine.stats.blocks_total;
  for (const auto& [key, record] : records_)
    load.queued_rows += record.queued_rows(expected_output_);
  load.rows_per_s = engine.rows_per_s;
  load.draft_runs = drafts_.open();
  load.drafting = drafts_.on();
  load.leaving = leaves_by_.has_value();
  load.hangs = hangs_;
  load.blocks_given = giver_->given();
  load.blocks_taken = peers_ ? peers_->taken() : 0;
  load.hints = engine.stats.hints;
  for (const schema::RouterHandle& router : routers_.all()) self_->send(router, load);
}

/// That somebody waits for.
size_t TargetState::open_requests() const {
  return static_cast<size_t>(std::ranges::count_if(records_, [&](const auto& record) {
    return !record.second.done() && cancelled_.count(record.first) == 0;
  }));
}

/// A step that was as long in the last look, too: after a stop of the whole process the first look
/// would find any step too long.
void TargetState::look_at_step() {
  const EngineSnapshot engine = engine_->snapshot();
  const bool is_long = hangs_after_ > Duration{0} && engine.step_began != TimePoint{0} &&
                       now() - engine.step_began > hangs_after_;
  const bool hangs = is_long && long_step_ == engine.step_began;
  long_step_ = is_long ? engine.step_began : TimePoint{0};
  if (hangs == hangs_) return;
  hangs_ = hangs;
  if (!hangs_) return log_->warn("{}: its engine goes on", announce_.name);
  log_->error("{}: its engine hangs in a step: {} of its requests are to go on elsewhere",
              announce_.name, open_requests());
  for (const auto& [key, record] : records_) {
    if (record.done() || cancelled_.count(key) != 0) continue;
    reject(record.session(), key, hanging());
  }
}

TimePoint TargetState::now() const {
  return std::chrono::duration_cast<TimePoint>(self_->clock().now().time_since_epoch());
}

void TargetState::leave() {
  if (!leaves_by_) {
    leaves_by_ = now() + leaves_within_;
    send_load();  // routers hear it before the sessions that ask them
    size_t given_away = 0;
    for (const auto& [key, record] : records_) {
      if (cancelled_.count(key) != 0) continue;
      self_->send(record.session(), schema::Leaving{key});
      asked_ = now();
      ++given_away;
    }
    if (given_away > 0) {
      log_->info("leaving: {} of its requests are to go on elsewhere, or to end here within {} s",
                 given_away,
                 std::chrono::duration_cast<std::chrono::seconds>(leaves_within_).count());
    }
    while (!assemblies_.empty()) {
      const RequestKey key = assemblies_.begin()->first;
      reject(assemblies_.begin()->second.session(), key,
             fail(ErrorCode::unavailable, "the worker is leaving"));
      drop(key);
    }
  }
  if (giver_->open() > 0) asked_ = now();
  const bool is_quiet = asked_ == TimePoint{0} || now() - asked_ >= k_leave_quiet;
  if ((records_.empty() && is_quiet) || now() >= *leaves_by_) {
    if (giver_->given() > 0) log_->info("gave {} blocks to other targets", giver_->given());
    const size_t left = open_requests();
    send_load();  // What it counted last.
    if (left == 0) return self_->quit(caf::exit_reason::user_shutdown);
    log_->warn("leaving: {} of its requests have neither ended nor gone on elsewhere", left);
    return self_->quit(caf::exit_reason::kill);
  }
  self_->delayed_send(caf::actor_cast<TargetActor>(self_), k_leave_look, LeaveNow{});
}

void TargetState::give(const schema::LineWanted& wanted) {
  if (!leaves_by_) return;  // Nobody has been sent here.
  asked_ = now();
  if (const auto gate = routers_.gate_of(wanted.router)) giver_->serve(*gate, wanted.line);
}

void TargetState::adopt(RequestKey key, const schema::SessionHandle& session) {
  owners_.insert_or_assign(key, session);
  Keys& keys = sessions_[session.address()];
  if (keys.empty()) self_->monitor(session);
  keys.insert(key);
}

void TargetState::drop(RequestKey key) {
  needs_no_peer(key);
  assemblies_.erase(key);
  records_.erase(key);
  cancelled_.erase(key);
  const auto owner = owners_.find(key);
  if (owner == owners_.end()) return;
  const caf::actor_addr address = owner->second.address();
  owners_.erase(owner);
  const auto session = sessions_.find(address);
  if (session == sessions_.end()) return;
  session->second.erase(key);
  if (!session->second.empty()) return;
  self_->demonitor(address);
  sessions_.erase(session);
}

void TargetState::reject(const schema::SessionHandle& session, RequestKey key, const Error& error) {
  const uint32_t retry = error.code == ErrorCode::overloaded ? limits::retry_after_ms : 0;
  self_->send(session, schema::Rejected{key, schema::Refusal::of(error, retry)});
}

TargetActor::behavior_type TargetState::make_behavior() {
  return {
      [this](const schema::SubmitBegin& message) { begin(message); },
      [this](const schema::PromptPart& message) { part(message); },
      [this](const schema::SubmitEnd& message) { submit(message.key); },
      [this](const schema::CancelRequest& message) { cancel(message.key); },
      [this](const schema::SetParked& message) {
        if (records_.count(message.key) == 0) return;
        engine_->set_parked(message.key, message.parked);
        drafts_.set_parked(message.key, message.parked);
        send_drafts();
      },
      [this](const schema::Resend& message) { resend(message); },
      [this](const schema::DoneAck& message) { cancel(message.key); },
      [this](const schema::AnnounceAgain&) { forgotten(); },
      [this](const schema::DraftLease& message) { lease(message); },
      [this](const schema::DraftReady& message) { draft_said(message); },
      [this](const schema::DraftHints& message) { draft_said(message); },
      [this](const schema::DraftResync& message) { draft_said(message); },
      [this](const schema::DraftClose& message) { draft_said(message); },
      [this](const schema::DraftsKnown& message) {
        if (routers_.is_first(caf::actor_cast<caf::actor_addr>(self_->current_sender()))) {
          draft(message);
          tell_of_idle_drafts(message.drafts);
        }
      },
      [this](const schema::WorkerRefused& message) { refused(message.refusal); },
      [this](const schema::LineWanted& message) { give(message); },
      [this](const EngineReport& message) { report(*message.events); },
      [this](caf::tick_atom) { heartbeat(); },
      [this](const schema::RouterFound& found) { join(found.router, found.gate); },
      [this](const LeaveNow&) { leave(); },
  };
}

TargetActor::behavior_type target_actor(TargetActor::stateful_pointer<TargetState> self,
                                        TargetSetup setup) {
  self->state.start(self, std::move(setup));
  return self->state.make_behavior();
}

}  // namespace outrider::actors
