#include "tools/embedded_cluster.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/io/middleman.hpp>
#include <caf/send.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "actors/front_desk.hpp"
#include "actors/system_config.hpp"
#include "base/system.hpp"
#include "cluster/wire.hpp"
#include "gateway/caf_bridge.hpp"
#include "model/hint_trie.hpp"
#include "router/router_actor.hpp"
#include "tools/engine_options.hpp"
#include "tools/kv_store.hpp"
#include "tools/peer_lines.hpp"

namespace outrider::tools {
namespace {

void update_hint_metrics(const HintCounters& hints, ServingMetrics& metrics) {
  raise_to(metrics.drafts, static_cast<double>(hints.drafts));
  raise_to(metrics.draft_tokens, static_cast<double>(hints.draft_tokens));
  raise_to(metrics.accepted_tokens, static_cast<double>(hints.accepted_tokens));
  for (size_t i = 0; i < hints.accepted_at.size() && (i == 0 || hints.accepted_at[i] > 0); ++i) {
    raise_to(metrics.accepted_at.of(std::to_string(i)), static_cast<double>(hints.accepted_at[i]));
  }
  for (size_t i = 0; i < hints.by_source.size(); ++i) {
    const HintCounters::OfSource& source = hints.by_source[i];
    const auto name = to_string(static_cast<HintSource>(i));
    raise_to(metrics.draft_tokens_of.of(name), static_cast<double>(source.draft_tokens));
    raise_to(metrics.accepted_tokens_of.of(name), static_cast<double>(source.accepted_tokens));
  }
  for (size_t i = 0; i < hints.hints.size(); ++i) {
    const auto outcome = static_cast<HintOutcome>(i);
    raise_to(metrics.hints.of(to_string(outcome)), static_cast<double>(hints.hints[i]));
  }
}

/// Of the first draft that is a member; empty: there is none.
std::string draft_model(std::span<const schema::WorkerInfo> members) {
  for (const schema::WorkerInfo& member : members) {
    if (member.announce.role == schema::Role::draft) return member.announce.model;
  }
  return {};
}

/// Into `out`: what came of hints.
void describe_hints(const HintCounters& hints, nlohmann::ordered_json& out) {
  nlohmann::ordered_json outcomes = nlohmann::ordered_json::object();
  for (size_t i = 0; i < hints.hints.size(); ++i) {
    outcomes[to_string(static_cast<HintOutcome>(i))] = hints.hints[i];
  }
  nlohmann::ordered_json sources = nlohmann::ordered_json::object();
  for (size_t i = 0; i < hints.by_source.size(); ++i) {
    const HintCounters::OfSource& source = hints.by_source[i];
    if (source.draft_tokens == 0) continue;
    sources[to_string(static_cast<HintSource>(i))] = {{"draft_tokens", source.draft_tokens},
                                                      {"accepted_tokens", source.accepted_tokens}};
  }
  auto places = nlohmann::ordered_json::array();
  for (const uint64_t accepted : hints.accepted_at) {
    if (accepted == 0) break;
    places.push_back(accepted);
  }
  out["drafts"] = hints.drafts;
  out["draft_tokens"] = hints.draft_tokens;
  out["accepted_tokens"] = hints.accepted_tokens;
  out["accepted_tokens_per_pos"] = std::move(places);
  out["sources"] = std::move(sources);
  out["hints"] = std::move(outcomes);
}

/// Null: nobody drafts.
nlohmann::ordered_json describe_drafts(const model::SpeculationOptions& options,
                                       const std::string& draft, const HintCounters& hints) {
  if (options.depth_max == 0) return nullptr;
  nlohmann::ordered_json out = {
      {"ngram", options.ngram},
      {"model", draft.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(draft)},
      {"depth_max", options.depth_max},
      {"fixed_depth", options.fixed_depth},
      {"disable_below_accept_percent", std::lround(100 * options.accept_min)}};
  describe_hints(hints, out);
  return out;
}

/// {"bytes_sent": N, "bytes_received": N, "ended": {REASON: N, …}}
nlohmann::ordered_json describe_lines(const link::LinkCounters& lines) {
  nlohmann::ordered_json ended = nlohmann::ordered_json::object();
  for (size_t i = 0; i < lines.ended.size(); ++i) {
    if (lines.ended[i] == 0) continue;
    ended[link::to_string(static_cast<link::LinkEnd>(i))] = lines.ended[i].load();
  }
  return {{"bytes_sent", lines.bytes_sent.load()},
          {"bytes_received", lines.bytes_received.load()},
          {"ended", std::move(ended)}};
}

/// {"connected": N, "line_ends": N, "lines": {"bytes_sent": N, …}, "refused": {REASON: N, …}}
nlohmann::ordered_json describe_gate(const cluster::GateCounters& gate,
                                     const link::LinkCounters& lines) {
  nlohmann::ordered_json refused = nlohmann::ordered_json::object();
  for (size_t i = 0; i < gate.refused.size(); ++i) {
    if (gate.refused[i] == 0) continue;
    refused[cluster::to_string(static_cast<cluster::Refusal>(i))] = gate.refused[i];
  }
  return {{"connected", gate.connected},
          {"line_ends", gate.line_ends},
          {"lines", describe_lines(lines)},
          {"refused", std::move(refused)}};
}

void update_gate_metrics(const cluster::GateCounters& gate, ServingMetrics& metrics) {
  metrics.cluster_connections.Set(gate.connected);
  metrics.cluster_line_ends.Set(gate.line_ends);
  for (size_t i = 1; i < gate.refused.size(); ++i) {  // 0 is no reason
    const char* reason = cluster::to_string(static_cast<cluster::Refusal>(i));
    raise_to(metrics.cluster_refused.of(reason), static_cast<double>(gate.refused[i]));
  }
}

/// {"rows": […], "contexts": […], "ms": [contexts][rows], …}
nlohmann::ordered_json describe_costs(const schema::Announce& announce) {
  auto table = nlohmann::ordered_json::array();
  const size_t width = announce.step_rows.size();
  for (size_t at = 0; at + width <= announce.step_ns.size() && width > 0; at += width) {
    auto row = nlohmann::ordered_json::array();
    for (size_t i = at; i < at + width; ++i) {
      row.push_back(static_cast<double>(announce.step_ns[i] / 1000) / 1000);
    }
    table.push_back(std::move(row));
  }
  return {{"rows", announce.step_rows},
          {"contexts", announce.step_contexts},
          {"ms", std::move(table)},
          {"prefill_row_ns", announce.prefill_row_ns},
          {"attention_pair_ps", announce.attention_pair_ps}};
}

void update_member_metrics(const schema::WorkerList& members, ServingMetrics& metrics) {
  metrics.cluster_members.of(to_string(schema::Role::target)).Set(members.targets);
  metrics.cluster_members.of(to_string(schema::Role::draft)).Set(members.drafts);
  for (const auto& [event, count] :
       {std::pair("joined", members.joined), std::pair("leaving", members.leaving),
        std::pair("left", members.left), std::pair("gone", members.gone),
        std::pair("late", members.late), std::pair("silent", members.silent),
        std::pair("hung", members.hung), std::pair("refused", members.refused)}) {
    raise_to(metrics.cluster_transitions.of(event), static_cast<double>(count));
  }
  raise_to(metrics.placed_again, static_cast<double>(members.placed_again));
}

/// Of a gateway without a target of its own: what all that it knows do together, whoever asked
/// them.
void update_load_metrics(const schema::WorkerList& members, ServingMetrics& metrics) {
  const schema::Load& load = members.in_targets;
  metrics.requests_running.Set(load.running);
  metrics.requests_waiting.Set(load.waiting);
  metrics.requests_parked.Set(load.parked);
  metrics.kv_blocks_total.Set(load.blocks_total);
  metrics.kv_blocks_free.Set(load.blocks_free);
  const double used = static_cast<double>(load.blocks_total) - load.blocks_free;
  metrics.kv_cache_usage.Set(load.blocks_total == 0 ? 0 : used / load.blocks_total);
  update_hint_metrics(members.hints, metrics);
}

model::ModelText model_text_of(const std::string& name, const model::LoadedModel& model) {
  return {name, model.config, model.tokenizer, model.chat_template};
}

gateway::ServedModel served_by(const schema::Announce& target, model::ModelText text) {
  gateway::ServedModel served;
  served.name = target.model;
  served.text = std::move(text);
  served.context_tokens = target.context_tokens;
  served.fingerprint = target.fingerprint;
  served.traits = target.traits;
  served.created_s = wall_time().time_since_epoch().count();
  return served;
}

}  // namespace

struct EmbeddedCluster::Actors {
  Actors(const std::shared_ptr<spdlog::logger>& log, BoundedStop& stop, bool is_reachable)
      : stopping(stop) {
    if (is_reachable) config.load<caf::io::middleman>();
    system = std::make_unique<caf::actor_system>(config);
    router = system->spawn(router::router_actor, log);
  }
  /// Waits for all actors, and with the last of them the engine goes.
  void end() {
    caf::anon_send_exit(router, caf::exit_reason::user_shutdown);
    router = nullptr;
    stopping.enter("closing the cluster port");
    wire.reset();
    stopping.enter("ending the engine and the actors");
    system->await_all_actors_done();
  }
  Actors(const Actors&) = delete;
  Actors& operator=(const Actors&) = delete;

  BoundedStop& stopping;
  actors::SystemConfig config;
  std::unique_ptr<caf::actor_system> system;
  schema::RouterHandle router;
  std::unique_ptr<cluster::Wire> wire;
};

/// The target of this process.
struct OwnTarget {
  std::shared_ptr<const model::LoadedModel> model;
  std::string kv_kind;
  model::DecodePlan decode_plan;
  model::SpeculationOptions speculation;
  bool takes_drafts = false;  ///< Of models.
  RunningTarget running;

  std::shared_ptr<actors::EngineLoop> engine() const { return running.engine(); }
};

struct EmbeddedCluster::State {
  std::vector<gateway::ServedModel> served;
  std::unique_ptr<OwnTarget> target;  ///< Null: all are elsewhere.
  std::optional<RunningDraft> draft;
  schema::FrontDeskHandle front_desk;
  std::unique_ptr<gateway::Backend> backend;
};

EmbeddedCluster::EmbeddedCluster(const Clock& clock, ServingMetrics& metrics,
                                 std::shared_ptr<spdlog::logger> log,
                                 std::optional<kvstore::ColdStoreOptions> store,
                                 BoundedStop& stopping)
    : clock_(clock), metrics_(metrics), log_(std::move(log)), stopping_(stopping) {
  if (!store) return;
  store_ = std::make_shared<kvstore::ColdStore>(
      std::move(*store), kvstore::Surroundings{.clock = clock_, .log = log_});
}

Result<uint16_t> EmbeddedCluster::listen(const cluster::Endpoint& endpoint,
                                         cluster::Credentials credentials,
                                         std::vector<schema::Served> expected) {
  OUTRIDER_ASSIGN(gate_, cluster::Gate::open({std::move(credentials), log_}));
  actors_ = std::make_unique<Actors>(log_, stopping_, true);
  actors_->wire = std::make_unique<cluster::Wire>(*actors_->system, gate_);
  caf::anon_send(actors_->router, schema::ServesModel{std::move(expected)});  // before who joins
  auto port = actors_->wire->publish(actors_->router, endpoint);
  if (port) return port;
  return fail(port.error().code, "cluster: " + port.error().message, "cluster");
}

EmbeddedCluster::~EmbeddedCluster() {
  stop();
}

TargetSurroundings EmbeddedCluster::surroundings() const {
  return {.clock = clock_,
          .log = log_,
          .store = store_,
          .lines = gate_ ? peer_lines(gate_, line_counters_) : actors::PeerLines()};
}

void EmbeddedCluster::stop() {
  if (store_) store_->lift_write_limit();
  view_->stop();
  if (state_) {
    caf::anon_send_exit(state_->front_desk, caf::exit_reason::user_shutdown);
    state_->backend.reset();
    state_->front_desk = nullptr;
    state_->target.reset();
    state_->draft.reset();
  }
  if (actors_) actors_->end();
  state_.reset();
  if (store_) {  // before CAF, whose end has no limit of its own
    stopping_.enter("closing the KV store");
    store_.reset();
  }
  if (!actors_) return;
  stopping_.enter("ending CAF");
  actors_.reset();
}

Result<void> EmbeddedCluster::add_draft(const DraftModel& draft, Prepared& prepared) const {
  if (draft.model->tokenizer->fingerprint() != prepared.target.model->tokenizer->fingerprint()) {
    return fail(ErrorCode::invalid_argument,
                "draft: the tokenizer of " + draft.name + " is another than the model's", "draft");
  }
  auto made = prepare_draft(draft, clock_);
  if (!made) return made.error();
  // Two models of one name could not be told apart.
  made->answers = draft.name != prepared.target.announce.model;
  const bool must_prove_itself = draft.competes && !prepared.target.speculation.fixed_depth;
  log_->info("draft model {}: context {} tokens, {}{}, {}", draft.name,
             made->announce.context_tokens,
             draft.competes ? "on cores that the model uses too" : "on cores of its own",
             must_prove_itself ? " (first tried after some 4000 steps)" : "",
             made->answers ? "served by its name, too" : "not served: it has the model's name");
  const uint32_t context = prepared.target.announce.context_tokens;
  if (made->announce.context_tokens < context) {
    log_->warn("{}", draft_context_warning(draft.options.kv_memory_bytes >> 20,
                                           made->announce.context_tokens, context));
  }
  prepared.draft = std::move(*made);
  return {};
}

void EmbeddedCluster::start(Prepared prepared) {
  PreparedTarget& target = prepared.target;
  const std::shared_ptr<const model::LoadedModel> model = target.model;
  auto state = std::make_unique<State>();
  state->served.push_back(served_by(target.announce, model_text_of(target.announce.model, *model)));
  if (const auto& draft = prepared.draft; draft && draft->answers) {
    state->served.push_back(
        served_by(draft->announce, model_text_of(draft->announce.model, *draft->model)));
  }
  if (!actors_) actors_ = std::make_unique<Actors>(log_, stopping_, false);
  target.draft_competes = prepared.draft && prepared.draft->competes;
  const model::DecodePlan plan = target.engine->decode_plan();
  state->target.reset(new OwnTarget{
      model, target.kv_kind, plan, target.speculation, target.takes_drafts,
      RunningTarget(*actors_->system, actors_->router, std::move(target), clock_, log_)});
  if (prepared.draft) {
    state->draft.emplace(*actors_->system, actors_->router, std::move(*prepared.draft), clock_,
                         log_);
  }
  start_desk(std::move(state));
}

std::unique_ptr<TargetWait> EmbeddedCluster::wait_for_target() {
  OUTRIDER_CHECK(actors_, "targets can join only where the cluster listens");
  metrics_.leave_out_engine();
  view_->start(*actors_->system, actors_->router);
  return std::make_unique<TargetWait>(*actors_->system, actors_->router);
}

void EmbeddedCluster::start(model::ModelText text, const schema::Announce& target) {
  auto state = std::make_unique<State>();
  state->served.push_back(served_by(target, std::move(text)));
  start_desk(std::move(state));
}

void EmbeddedCluster::start_desk(std::unique_ptr<State> state) {
  caf::actor_system& system = *actors_->system;
  const schema::RouterHandle& router = actors_->router;
  std::vector<schema::Served> models;
  for (const auto& served : state->served) {
    models.push_back({served.name, served.fingerprint, served.traits});
  }
  state->front_desk = system.spawn(
      actors::front_desk, actors::FrontDeskSetup{.router = router, .models = std::move(models)});
  view_->start(system, router, state->front_desk);
  state->backend = gateway::make_caf_bridge(state->front_desk);
  state_ = std::move(state);
}

bool EmbeddedCluster::has_target() const {
  if (!state_) return false;
  if (state_->target) return true;
  const auto& workers = view_->snapshot().members.workers;
  return std::any_of(workers.begin(), workers.end(), [&](const schema::WorkerInfo& worker) {
    return worker.announce.role == schema::Role::target && !worker.load.takes_none() &&
           worker.announce.model == state_->served.front().name;
  });
}

gateway::Backend& EmbeddedCluster::backend() {
  return *state_->backend;
}

const std::vector<gateway::ServedModel>& EmbeddedCluster::served_models() const {
  return state_->served;
}

std::string EmbeddedCluster::device() const {
  return state_->target ? std::string(state_->target->model->ops->description())
                        : "targets that join";
}

std::string EmbeddedCluster::describe(const gateway::Viewer& viewer) const {
  const auto snapshot = view_->snapshot();
  nlohmann::ordered_json out;
  out["sessions_open"] = snapshot.sessions_open;
  if (state_ && state_->target) out["kv_kind"] = state_->target->kv_kind;
  out["members_by_role"] = {{to_string(schema::Role::target), snapshot.members.targets},
                            {to_string(schema::Role::draft), snapshot.members.drafts}};
  out["members"] = nlohmann::ordered_json::array();
  for (const schema::WorkerInfo& worker : snapshot.members.workers) {
    const schema::Announce& announce = worker.announce;
    const schema::Load& load = worker.load;
    nlohmann::ordered_json member = {{"name", announce.name},
                                     {"role", to_string(announce.role)},
                                     {"model", announce.model},
                                     {"fingerprint", announce.fingerprint},
                                     {"incarnation", announce.incarnation},
                                     {"context_tokens", announce.context_tokens},
                                     {"silent_ms", worker.silent_ms},
                                     {"charged_choices", worker.charged_choices},
                                     {"step_costs", describe_costs(announce)},
                                     {"load",
                                      {{"running", load.running},
                                       {"waiting", load.waiting},
                                       {"parked", load.parked},
                                       {"blocks_free", load.blocks_free},
                                       {"blocks_total", load.blocks_total},
                                       {"queued_rows", load.queued_rows},
                                       {"rows_per_s", load.rows_per_s},
                                       {"draft_runs", load.draft_runs},
                                       {"drafting", load.drafting},
                                       {"leaving", load.leaving},
                                       {"hangs", load.hangs},
                                       {"blocks_given", load.blocks_given},
                                       {"blocks_taken", load.blocks_taken}}}};
    if (announce.step_rows.empty()) member.erase("step_costs");  // a draft's engine: not measured
    if (announce.role == schema::Role::draft) {
      for (const char* of_target :
           {"drafting", "leaving", "hangs", "blocks_given", "blocks_taken"}) {
        member["load"].erase(of_target);
      }
    }
    out["members"].push_back(std::move(member));
  }
  if (state_ && state_->target) {
    const OwnTarget& own = *state_->target;
    out["decode_plan"] = {{"contexts", own.decode_plan.contexts}, {"rows", own.decode_plan.rows}};
    if (const auto loop = own.engine()) {
      const std::string model = own.takes_drafts ? draft_model(snapshot.members.workers) : "";
      out["drafts"] = describe_drafts(own.speculation, model, loop->snapshot().stats.hints);
    }
  } else if (view_->is_started()) {
    describe_hints(snapshot.members.hints, out["drafts"]);
  }
  if (gate_) out["gate"] = describe_gate(gate_->counters(), *line_counters_);
  if (store_) {
    out["kv_store"] = describe_store(store_->stats(), viewer);
  }
  // Errors of the system quote paths, which may be any bytes.
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void EmbeddedCluster::reset_cache(const gateway::CacheReset& what,
                                  gateway::CacheResetAnswer answer) {
  if (state_ && !state_->target) {
    return answer(fail(ErrorCode::unsupported,
                       "this gateway has no cache of its own: its targets have theirs"));
  }
  const auto loop = state_ ? state_->target->engine() : nullptr;
  if (!loop) return answer(fail(ErrorCode::unavailable, "the engine has stopped"));
  const auto pool_reset = [what, answer, store = store_](model::CacheReset pool) {
    gateway::CacheResetDone done{pool.forgotten, pool.held, std::nullopt};
    if (!what.cold || !store) {
      if (what.cold) done.cold_blocks = 0;
      return answer(done);
    }
    store->drop_all(what.tenant, [answer, done](const Result<uint64_t>& dropped) mutable {
      if (!dropped) return answer(dropped.error());
      done.cold_blocks = *dropped;
      answer(done);
    });
  };
  if (state_->draft) state_->draft->forget_cached(what.tenant);
  loop->forget_cached(what.tenant, pool_reset);
}

void EmbeddedCluster::update_metrics() {
  if (store_) update_store_metrics(store_->stats(), metrics_.store());
  if (gate_) update_gate_metrics(gate_->counters(), metrics_);
  if (!view_->is_started()) return;
  const ClusterView::Snapshot seen = view_->snapshot();
  metrics_.sessions_open.Set(seen.sessions_open);
  update_member_metrics(seen.members, metrics_);
  if (!state_ || !state_->target) return update_load_metrics(seen.members, metrics_);
  if (const auto& warm = state_->target->running.warm()) {
    const kvstore::WarmStats host = warm->stats();
    metrics_.host_blocks.Set(static_cast<double>(host.blocks));
    metrics_.host_blocks_total.Set(static_cast<double>(host.slots));
    raise_to(metrics_.host_evictions, static_cast<double>(host.evicted));
  }
  const auto loop = state_->target->engine();
  if (!loop) return;
  const actors::EngineSnapshot snapshot = loop->snapshot();
  const model::EngineStats& stats = snapshot.stats;
  metrics_.requests_running.Set(stats.running);
  metrics_.requests_waiting.Set(stats.waiting + snapshot.inbox);
  metrics_.requests_parked.Set(stats.parked);
  metrics_.kv_blocks_total.Set(stats.blocks_total);
  metrics_.kv_blocks_free.Set(stats.blocks_free);
  const double used = static_cast<double>(stats.blocks_total) - stats.blocks_free;
  metrics_.kv_cache_usage.Set(stats.blocks_total == 0 ? 0 : used / stats.blocks_total);
  raise_to(metrics_.preemptions, static_cast<double>(stats.preemptions));
  raise_to(metrics_.engine_steps, static_cast<double>(stats.steps));
  metrics_.prefix_cache_blocks.Set(stats.blocks_cached);
  metrics_.prefix_cache_pinned_blocks.Set(stats.blocks_pinned);
  raise_to(metrics_.prefix_cache_pins_denied.of("share"), static_cast<double>(stats.pins_refused));
  raise_to(metrics_.prefix_cache_pins_denied.of("memory"), static_cast<double>(stats.pins_evicted));
  raise_to(metrics_.prefix_cache_queries, static_cast<double>(stats.prefix_queries));
  raise_to(metrics_.prefix_cache_hits, static_cast<double>(stats.prefix_hits));
  raise_to(metrics_.tier_lost, static_cast<double>(stats.tier.lost_blocks));
  raise_to(metrics_.prefix_cache_hits_warm, static_cast<double>(stats.prefix_hits_warm));
  raise_to(metrics_.prefix_cache_hits_cold, static_cast<double>(stats.prefix_hits_cold));
  raise_to(metrics_.prefix_cache_hits_peer, static_cast<double>(stats.prefix_hits_peer));
  raise_to(metrics_.prefix_cache_evictions, static_cast<double>(stats.prefix_evictions));
  update_hint_metrics(stats.hints, metrics_);
}

}  // namespace outrider::tools
