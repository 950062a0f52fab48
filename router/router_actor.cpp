#include "router/router_actor.hpp"

#include <algorithm>
#include <caf/actor_clock.hpp>
#include <caf/stateful_actor.hpp>

#include "base/limits.hpp"
#include "router/placement.hpp"
#include "schema/survive.hpp"

namespace outrider::router {
namespace {

using std::chrono::milliseconds;

constexpr auto k_tick = milliseconds(limits::heartbeat_interval_ms);
/// Ticks that did not come: then this process stood still, and not who seems to be silent.
constexpr Duration k_stood_still = 2 * k_tick;
constexpr size_t k_name_bytes_max = 128;
/// Before the asking session would take silence for a loss.
constexpr Duration k_hold = milliseconds(limits::control_timeout_ms / 2);

/// A member's word stands in lines of logs.
std::string plain(std::string name) {
  if (name.size() > k_name_bytes_max) name.resize(k_name_bytes_max);
  std::ranges::replace_if(
      name, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return name;
}

std::string in_one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return text;
}

}  // namespace

void RouterState::start(RouterActor::pointer self, std::shared_ptr<spdlog::logger> log) {
  self_ = self;
  log_ = std::move(log);
  schema::survive_unknown_messages(self_, [this](const caf::error& error) {
    log_->warn("router: a message was not understood: {}", self_->system().render(error));
  });
  self_->set_down_handler([this](caf::down_msg& down) { lost(down); });
  ticked_ = now();
  self_->delayed_send(caf::actor_cast<RouterActor>(self_), k_tick, caf::tick_atom_v);
}

TimePoint RouterState::now() const {
  return std::chrono::duration_cast<TimePoint>(self_->clock().now().time_since_epoch());
}

void RouterState::place(const schema::PlaceRequest& request) {
  if (!request.reply_to) return;
  // What it had before must not keep it out: an attempt that was lost, a reply that was.
  table_.release(request.key);
  if (request.replaces != 0) table_.release({request.key.session, request.replaces});
  if (!try_place(request)) hold(request);
}

bool RouterState::try_place(const schema::PlaceRequest& request) {
  const auto candidates = table_.candidates(request);
  if (candidates.empty()) return false;
  if (auto refusal = admit(request, candidates, shares(request))) {
    refuse(request, std::move(*refusal));
    return true;
  }
  const auto cost = router::place(request, candidates, now());
  if (!cost) return false;
  log_->debug("session {:x}.{}: {}", request.key.session, request.key.generation, explain(*cost));
  if (request.replaces != 0) ++counted_.placed_again;
  admit_client(request);
  table_.charge(charge_for(request, cost->worker, now()));
  const schema::Announce& worker = table_.workers().at(cost->worker).announce;
  self_->send(
      request.reply_to,
      schema::PlaceReply{request.key, {}, worker.target, worker.worker, worker.fingerprint});
  return true;
}

void RouterState::hold(const schema::PlaceRequest& request) {
  std::erase_if(held_, [&](const Held& held) { return held.request.key == request.key; });
  if (held_.size() >= limits::router_pending_max) {
    return refuse(request, schema::Refusal::of(
                               fail(ErrorCode::overloaded, "too many requests wait for a worker"),
                               limits::retry_after_ms));
  }
  held_.push_back({request, now() + k_hold});
}

void RouterState::retry_held() {
  std::deque<Held> waiting;
  waiting.swap(held_);
  for (Held& held : waiting) {
    if (!try_place(held.request)) held_.push_back(std::move(held));
  }
}

void RouterState::announce(const schema::Announce& said) {
  schema::Announce announce = said;
  announce.name = plain(announce.name);
  const caf::actor_addr worker = address_of(announce);
  if (!worker) return;
  const auto known = table_.workers().find(announce.worker);
  const bool is_known = known != table_.workers().end();
  if (refuse_worker(announce)) {
    if (is_known && address_of(known->second.announce) == worker) remove(announce.worker);
    return;
  }
  if (is_another(announce.worker, worker)) return;
  self_->demonitor(worker);  // Repeated announcements: one monitor is enough.
  if (announce.role == schema::Role::draft) {
    self_->monitor(announce.draft);
  } else {
    self_->monitor(announce.target);
  }
  if (is_known && known->second.announce.incarnation != announce.incarnation) {
    remove(announce.worker);
  }
  const bool is_new = table_.workers().find(announce.worker) == table_.workers().end();
  table_.announce(announce, now());
  if (is_new) {
    ++counted_.joined;
    tell_of_namesakes(announce);
    log_->info("{} joined: {} of {}, context {} tokens", announce.name, to_string(announce.role),
               plain(announce.model), announce.context_tokens);
  }
  drafts_told_.erase(announce.worker);
  if (announce.role == schema::Role::target &&
      target_tokenizers_.emplace(announce.tokenizer, announce.model).second) {
    refuse_others();
  }
  retry_held();
  send(leases_.grant_waiting(table_));
  tell_drafts();
}

/// An actor is one worker: nobody fills the table with names.
bool RouterState::is_another(uint64_t worker, const caf::actor_addr& actor) const {
  return std::ranges::any_of(table_.workers(), [&](const auto& entry) {
    return entry.first != worker && address_of(entry.second.announce) == actor;
  });
}

Result<void> RouterState::check_target(const schema::Announce& announce) const {
  if (served_.empty()) return {};
  const auto is_named = [&](const schema::Served& it) { return it.model == announce.model; };
  const auto is_equal = [&](const schema::Served& it) {
    return it.fingerprint.empty() ? has_all(announce.traits, it.traits)
                                  : it.fingerprint == announce.fingerprint;
  };
  const auto answers_otherwise = [&](const schema::Served& it) {
    const AnswerTraits own =  // Of a model that no target has decided on, only what was asked for.
        it.fingerprint.empty() ? named_in(announce.traits, it.traits) : announce.traits;
    return fail(ErrorCode::invalid_argument,
                "model: answers of \"" + announce.model + "\" would be others than " +
                    (announce.model == it.model ? "here" : "those of \"" + it.model + '"') + ": " +
                    differences(own, it.traits),
                "model");
  };
  const auto named = std::ranges::find_if(served_, is_named);
  if (named != served_.end()) {
    if (is_equal(*named)) return {};
    return answers_otherwise(*named);
  }
  const schema::Served& first = served_.front();
  if (first.fingerprint.empty()) {
    return fail(ErrorCode::invalid_argument,
                "model: it serves \"" + announce.model + "\", the cluster \"" + first.model + "\"",
                "model");
  }
  if (const auto equal = std::ranges::find_if(served_, is_equal); equal != served_.end()) {
    return fail(ErrorCode::invalid_argument,
                "model: it is \"" + announce.model + "\" here and \"" + equal->model +
                    "\" there; --model-name " + equal->model + " gives it the same name",
                "model");
  }
  return answers_otherwise(first);
}

Result<void> RouterState::check_draft(const schema::Announce& announce) const {
  if (target_tokenizers_.empty() || target_tokenizers_.contains(announce.tokenizer)) return {};
  return fail(ErrorCode::invalid_argument,
              "draft: the tokenizer of \"" + announce.model + "\" is another than that of \"" +
                  target_tokenizers_.begin()->second + "\"",
              "draft");
}

bool RouterState::refuse_worker(const schema::Announce& announce) {
  const bool drafts = announce.role == schema::Role::draft;
  const auto fits = drafts ? check_draft(announce) : check_target(announce);
  if (fits) return false;
  ++counted_.refused;
  log_->error("{} {} is refused: {}", schema::to_string(announce.role), announce.name,
              in_one_line(fits.error().message));
  const schema::WorkerRefused why{announce.worker, schema::Refusal::of(fits.error())};
  if (drafts) {
    self_->send(announce.draft, why);
  } else {
    self_->send(announce.target, why);
  }
  return true;
}

void RouterState::refuse_others() {
  std::vector<uint64_t> refused;
  for (const auto& [id, worker] : table_.workers()) {
    if (refuse_worker(worker.announce)) refused.push_back(id);
  }
  for (const uint64_t worker : refused) remove(worker);
}

void RouterState::send(const std::vector<LeaseTable::Grant>& grants) {
  for (const LeaseTable::Grant& grant : grants) self_->send(grant.to, grant.lease);
}

void RouterState::tell_drafts() {
  std::map<uint64_t, uint32_t> told;
  for (const auto& [id, worker] : table_.workers()) {
    if (worker.announce.role != schema::Role::target) continue;
    const uint32_t drafts = table_.drafts_for(worker.announce);
    told.emplace(id, drafts);
    const auto before = drafts_told_.find(id);
    if (before != drafts_told_.end() && before->second == drafts) continue;
    self_->send(worker.announce.target, schema::DraftsKnown{drafts});
  }
  drafts_told_ = std::move(told);
}

void RouterState::remove(uint64_t worker) {
  table_.remove(worker);
  send(leases_.drop(worker, table_));
  tell_drafts();
}

/// A worker or a session is gone.
void RouterState::lost(const caf::down_msg& down) {
  const caf::actor_addr& actor = down.source;
  if (const auto client = clients_.find(actor); client != clients_.end()) {
    auto& tenants = in_flight_[client->second.model];
    uint32_t& choices = tenants[client->second.tenant];
    choices -= client->second.choices;
    if (choices == 0) tenants.erase(client->second.tenant);
    if (tenants.empty()) in_flight_.erase(client->second.model);
    table_.release_session(client->second.session);
    clients_.erase(client);
    return;
  }
  for (const auto& [id, worker] : table_.workers()) {
    if (address_of(worker.announce) != actor) continue;
    const bool in_order = down.reason == caf::exit_reason::user_shutdown;
    ++(in_order ? counted_.left : counted_.gone);
    if (in_order) {
      log_->info("{} has stopped", worker.announce.name);
    } else {
      log_->warn("{} is gone: its connection ended {:.0f} ms after it was last heard",
                 worker.announce.name, to_ms(now() - worker.heard));
    }
    return remove(id);
  }
}

void RouterState::tell_news(const schema::Load& load) {
  const auto found = table_.workers().find(load.worker);
  if (found == table_.workers().end()) return;
  const WorkerView& worker = found->second;
  const std::string& name = worker.announce.name;
  if (worker.announce.incarnation != load.incarnation) return;
  if (worker.is_late)
    log_->info("{} is heard again after {:.0f} ms", name, to_ms(now() - worker.heard));
  if (load.sequence <= worker.load.sequence) return;
  if (load.leaving && !worker.load.leaving) {
    ++counted_.leaving;
    log_->info("{} is leaving: what it has goes on elsewhere", name);
  }
  if (worker.load.hangs == load.hangs) return;
  if (load.hangs) ++counted_.hung;
  log_->log(load.hangs ? spdlog::level::warn : spdlog::level::info, "{} {}", name,
            load.hangs ? "hangs: what it had goes on elsewhere" : "goes on");
}

void RouterState::tell_of_late() {
  for (const auto& [name, silence] : table_.find_late(now())) {
    ++counted_.late;
    log_->info("{} is late: nothing was heard of it for {:.0f} ms", name, to_ms(silence));
  }
}

void RouterState::tell_of_namesakes(const schema::Announce& announce) {
  for (const auto& [id, worker] : table_.workers()) {
    if (id == announce.worker || worker.announce.name != announce.name) continue;
    if (worker.announce.incarnation == announce.incarnation) continue;  // its other role
    log_->warn("another member is called {}, too: --node-name tells them apart", announce.name);
    return;
  }
}

void RouterState::look_for_silence() {
  const TimePoint at = now();
  const bool stood_still = at - std::exchange(ticked_, at) > k_stood_still;
  if (stood_still) return;  // What came meanwhile is read first.
  tell_of_late();
  const auto silent = table_.age_out(at);
  for (const schema::Announce& worker : silent) {
    ++counted_.silent;
    log_->warn("{} is silent: {}", worker.name,
               worker.role == schema::Role::draft ? "others draft, or nobody does"
                                                  : "what it had goes on elsewhere");
    send(leases_.drop(worker.worker, table_));
  }
  if (!silent.empty()) tell_drafts();
}

void RouterState::tick() {
  look_for_silence();
  while (!held_.empty() && held_.front().until <= now()) {
    const schema::PlaceRequest request = std::move(held_.front().request);
    held_.pop_front();
    const bool has_targets =
        std::any_of(table_.workers().begin(), table_.workers().end(),
                    [](auto& entry) { return entry.second.announce.role == schema::Role::target; });
    refuse(request,
           schema::Refusal::of(fail(ErrorCode::unavailable,
                                    has_targets ? "no target serves this model and so long a prompt"
                                                : "no target is there"),
                               limits::retry_after_ms));
  }
  self_->delayed_send(caf::actor_cast<RouterActor>(self_), k_tick, caf::tick_atom_v);
}

/// Counts the session once; its later attempts only move it.
void RouterState::admit_client(const schema::PlaceRequest& request) {
  const auto [client, is_new] = clients_.try_emplace(
      request.reply_to.address(),
      Client{request.key.session, request.model, request.tenant, request.choices});
  if (!is_new) return;
  self_->monitor(request.reply_to);
  in_flight_[request.model][request.tenant] += request.choices;
}

TenantShares RouterState::shares(const schema::PlaceRequest& request) const {
  TenantShares held;
  const auto model = in_flight_.find(request.model);
  if (model == in_flight_.end()) return held;
  for (const auto& [tenant, choices] : model->second) {
    (tenant == request.tenant ? held.own : held.others) += choices;
  }
  const auto client = clients_.find(request.reply_to.address());
  if (client != clients_.end()) held.own -= client->second.choices;  // It asks for what it has.
  return held;
}

void RouterState::refuse(const schema::PlaceRequest& request, schema::Refusal refusal) {
  schema::PlaceReply reply;
  reply.key = request.key;
  reply.refusal = std::move(refusal);
  self_->send(request.reply_to, std::move(reply));
}

schema::WorkerList RouterState::list() const {
  schema::WorkerList list = counted_;
  list.hints = table_.hints();
  std::vector<const WorkerView*> listed;
  for (const auto& [id, worker] : table_.workers()) {
    listed.push_back(&worker);
    if (worker.announce.role == schema::Role::draft) {
      ++list.drafts;
      continue;
    }
    ++list.targets;
    list.in_targets.running += worker.load.running;
    list.in_targets.waiting += worker.load.waiting;
    list.in_targets.parked += worker.load.parked;
    list.in_targets.blocks_free += worker.load.blocks_free;
    list.in_targets.blocks_total += worker.load.blocks_total;
  }
  std::ranges::sort(listed, {}, &WorkerView::place);
  if (listed.size() > limits::listed_workers_max) {
    const auto is_draft = [](const WorkerView* it) {
      return it->announce.role == schema::Role::draft;
    };
    const auto draft = std::ranges::find_if(listed, is_draft);
    const WorkerView* const first_draft = draft == listed.end() ? nullptr : *draft;
    std::stable_partition(listed.begin(), listed.end(), [&](const WorkerView* it) {
      return it == first_draft || (!is_draft(it) && !it->load.takes_none());
    });
    listed.resize(limits::listed_workers_max);
    std::ranges::sort(listed, {}, &WorkerView::place);
  }
  for (const WorkerView* worker : listed) {
    const auto silent = std::chrono::duration_cast<milliseconds>(now() - worker->heard).count();
    list.workers.push_back(
        {worker->announce, worker->load, static_cast<uint32_t>(silent), worker->charged_choices});
    list.workers.back().load.hints = caf::none;
  }
  return list;
}

RouterActor::behavior_type RouterState::make_behavior() {
  return {
      [this](const schema::PlaceRequest& request) { place(request); },
      [this](const schema::Announce& message) { announce(message); },
      [this](const schema::Load& load) {
        tell_news(load);
        if (table_.update(load, now())) return;
        const auto worker = caf::actor_cast<schema::WorkerHandle>(self_->current_sender());
        if (worker) self_->send(worker, schema::AnnounceAgain{load.worker});
      },
      [this](const schema::LeaseDraft& ask) { send(leases_.ask(ask, table_)); },
      [this](const schema::EndLease& ended) { send(leases_.end(ended, table_)); },
      [this](const schema::ServesModel& serves) {
        served_ = serves.models;
        for (const schema::Served& model : served_) {
          for (const auto& [trait, value] : model.traits) {
            if (trait == "tokenizer") target_tokenizers_.emplace(value, model.model);
          }
        }
        refuse_others();
      },
      [this](const schema::ListWorkers&) { return list(); },
      [this](caf::tick_atom) { tick(); },
  };
}

RouterActor::behavior_type router_actor(RouterActor::stateful_pointer<RouterState> self,
                                        std::shared_ptr<spdlog::logger> log) {
  self->state.start(self, std::move(log));
  return self->state.make_behavior();
}

}  // namespace outrider::router
