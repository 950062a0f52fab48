#include <kj/async-io.h>
#include <unistd.h>

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <climits>
#include <functional>
#include <memory>
#include <optional>

#include "actors/system_config.hpp"
#include "base/log.hpp"
#include "cluster/router_link.hpp"
#include "cluster/wire.hpp"
#include "tools/background_load.hpp"
#include "tools/bounded_stop.hpp"
#include "tools/cluster_access.hpp"
#include "tools/command.hpp"
#include "tools/config_check.hpp"
#include "tools/draft_model.hpp"
#include "tools/engine_options.hpp"
#include "tools/peer_lines.hpp"
#include "tools/settings_rules.hpp"
#include "tools/stop_signals.hpp"
#include "tools/target_load.hpp"
#include "tools/thread_room.hpp"

namespace outrider::tools {
namespace {

/// Of all roles: what a role does not use has no effect in it.
const std::vector<std::string>& node_setting_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"roles",
                                    "join",
                                    "drain-timeout-s",
                                    "node-name",
                                    "cluster-tls-cert",
                                    "cluster-tls-key",
                                    "cluster-tls-ca",
                                    "cluster-tls-name",
                                    "cluster-nccl",
                                    "model-name",
                                    "max-seqs",
                                    "max-waiting",
                                    "draft-rows",
                                    "kv-host-mb",
                                    "store-dir",
                                    "store-cap-mb",
                                    "store-quota-mb",
                                    "store-tenant-quota-mb",
                                    "store-write-mb-s",
                                    "cluster-secret-file",
                                    "log-level",
                                    "log-json"};
    const auto& engine = engine_setting_names();
    all.insert(all.end(), engine.begin(), engine.end());
    return all;
  }();
  return names;
}

/// One of the roles.
struct Prepared {
  std::shared_ptr<kvstore::ColdStore> store;
  std::optional<PreparedTarget> target;
  std::optional<PreparedDraft> draft;

  schema::Announce& announce() { return target ? target->announce : draft->announce; }
};

Result<Prepared> load_draft(const Settings& settings, const Clock& clock, spdlog::logger& log,
                            const std::atomic<bool>& stop) {
  std::string path;
  OUTRIDER_ASSIGN(path, resolve_model(settings.text("model")));
  const LoadWords words = {.inform = [&](const std::string& text) { log.info("{}", text); },
                           .warn = [&](const std::string& text) { log.warn("{}", text); }};
  words.inform("loading the draft model " + path);
  std::shared_ptr<const model::LoadedModel> model;
  OUTRIDER_ASSIGN(model, load_with_progress(settings, &stop, words));
  DraftModel draft;
  draft.model = std::move(model);
  draft.name = served_name(settings, path);
  draft.options = draft_engine_options(settings, settings.count("kv-memory-mb"));
  draft.rows = static_cast<uint32_t>(settings.count("draft-rows"));
  draft.options.context_tokens = static_cast<uint32_t>(settings.count("ctx"));
  auto prepared = prepare_draft(draft, clock);
  if (!prepared) return prepared.error();
  const std::string cut = context_warning(settings, prepared->announce.context_tokens,
                                          draft.model->config.context_length);
  if (!cut.empty()) words.warn(cut + ": what is longer is not drafted for");
  return Prepared{{}, {}, std::move(*prepared)};
}

Result<Prepared> load_target(const Settings& settings, const std::string& name, TargetPlan plan,
                             const Clock& clock, const std::shared_ptr<spdlog::logger>& log,
                             const std::shared_ptr<cluster::Gate>& gate,
                             const std::atomic<bool>& stop) {
  Prepared prepared;
  if (plan.store) {
    prepared.store = std::make_shared<kvstore::ColdStore>(
        std::move(*plan.store), kvstore::Surroundings{.clock = clock, .log = log});
  }
  auto target = load_target(
      settings, name, std::move(plan.options),
      {clock, log, prepared.store, peer_lines(gate, std::make_shared<link::LinkCounters>())}, stop);
  if (!target) return target.error();
  target->takes_drafts = takes_draft_models(settings);
  prepared.target.emplace(std::move(*target));
  return prepared;
}

/// For people: several nodes are members of one cluster.
std::string node_name(const Settings& settings, const std::string& role) {
  if (const std::string& given = settings.text("node-name"); !given.empty()) return given;
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, HOST_NAME_MAX);
  return role + "-" + host + "-" + std::to_string(::getpid());
}

/// Its actors, for as long as it lives.
class Node {
 public:
  Node(const std::vector<cluster::Endpoint>& routers, std::shared_ptr<cluster::Gate> gate,
       Prepared prepared, const Clock& clock, const std::shared_ptr<spdlog::logger>& log,
       BoundedStop& stop)
      : stop_(stop), store_(std::move(prepared.store)), gate_(std::move(gate)) {
    config_.load<caf::io::middleman>();
    system_ = std::make_unique<caf::actor_system>(config_);
    wire_ = std::make_unique<cluster::Wire>(*system_, gate_);
    if (prepared.target) {
      prepared.target->routers = routers.size();
      target_.emplace(*system_, schema::RouterHandle(), std::move(*prepared.target), clock, log);
      join(routers, target_->actor(), log);
    } else {
      prepared.draft->routers = routers.size();
      draft_.emplace(*system_, schema::RouterHandle(), std::move(*prepared.draft), clock, log);
      join(routers, draft_->actor(), log);
    }
  }

  ~Node() {
    if (store_) store_->lift_write_limit();  // nobody waits for an answer any more
    end_worker();
    stop_.enter("closing connections");
    wire_.reset();
    stop_.enter("ending actors");
    system_->await_all_actors_done();
    if (store_) {  // before CAF, whose end has no limit of its own
      stop_.enter("closing the KV store");
      store_.reset();
    }
    stop_.enter("ending CAF");
    system_.reset();
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  /// A target's requests go on elsewhere, or end here. Whether all did.
  bool leave() {
    if (!target_) return true;
    stop_.enter("leaving");
    const caf::scoped_actor self(*system_);
    bool left = false;
    self->monitor(target_->actor());
    caf::anon_send(target_->actor(), actors::LeaveNow{});
    self->receive(
        [&](const caf::down_msg& down) { left = down.reason == caf::exit_reason::user_shutdown; });
    return left;
  }

  /// Resolves when none of its routers will have it.
  kj::Promise<void> refused() { return kj::mv(refused_); }

 private:
  void end_worker() {
    stop_.enter("ending the engine and its links to routers");
    const caf::scoped_actor self(*system_);
    target_.reset();
    draft_.reset();
    for (const cluster::RouterLink& link : links_) {
      self->wait_for(link);  // it ends with its worker, and uses the wire until then
    }
    links_.clear();
  }

  template <class Worker>
  void join(const std::vector<cluster::Endpoint>& routers, const Worker& worker,
            const std::shared_ptr<spdlog::logger>& log) {
    auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
    refused_ = kj::mv(pair.promise);
    auto ended =
        std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<void>>>(kj::mv(pair.fulfiller));
    worker->attach_functor([ended] { (*ended)->fulfill(); });
    for (const cluster::Endpoint& router : routers) {
      links_.push_back(cluster::spawn_router_link(
          *system_, {wire_.get(), router, caf::actor_cast<cluster::RoutedHandle>(worker), log}));
    }
  }

  BoundedStop& stop_;
  std::shared_ptr<kvstore::ColdStore> store_;
  std::shared_ptr<cluster::Gate> gate_;
  actors::SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;
  std::unique_ptr<cluster::Wire> wire_;
  kj::Promise<void> refused_ = nullptr;
  std::optional<RunningTarget> target_;
  std::optional<RunningDraft> draft_;
  std::vector<cluster::RouterLink> links_;
};

int run_node(const Settings& settings) {
  auto log = make_logger({settings.text("log-level"), settings.flag("log-json")});
  if (!log) return report(log.error());
  if (const auto room = check_thread_room(serving_threads()); !room) return report(room.error());
  BoundedStop stopping(stop_limit(std::chrono::seconds(settings.count("drain-timeout-s"))), *log);
  auto credentials = cluster_credentials(settings);
  if (!credentials) return report(credentials.error());
  const auto routers = routers_to_join(settings, *credentials);
  if (!routers) return report(routers.error());
  auto opened = cluster::Gate::open({std::move(*credentials), *log});
  if (!opened) return report(opened.error());
  const std::shared_ptr<cluster::Gate> gate = std::move(*opened);
  const std::string role = settings.text("roles") == "auto" ? "draft" : settings.text("roles");
  const SteadyClock clock;
  std::function<Result<Prepared>(const std::atomic<bool>& stop)> load;
  if (role == "target") {
    const auto checked = check_target_node(settings);
    if (!checked) return report(checked.error());
    for (const std::string& warning : checked->warnings) (*log)->warn("{}", warning);
    auto plan = plan_target(settings);
    if (!plan) return report(plan.error());
    load = [&, plan = std::move(*plan),
            name = served_name(settings, checked->model)](const std::atomic<bool>& stop) {
      return load_target(settings, name, plan, clock, *log, gate, stop);
    };
  } else {
    const auto fits = check_together(settings, Command::node);
    if (!fits) return report(fits.error());
    for (const std::string& warning : *fits) (*log)->warn("{}", warning);
    load = [&](const std::atomic<bool>& stop) { return load_draft(settings, clock, **log, stop); };
  }
  auto io = kj::setupAsyncIo();
  auto stop = stop_signal(io.unixEventPort).fork();
  BackgroundLoad<Prepared> loading(load);
  auto* loaded = loading.wait(io.waitScope, stop.addBranch());
  if (loaded == nullptr) return give_up(loading, stopping, **log);
  if (!*loaded) return report(loaded->error());
  Prepared& prepared = **loaded;
  schema::Announce& announce = prepared.announce();
  announce.name = node_name(settings, role);
  if (prepared.target) {
    prepared.target->leaves_within = std::chrono::seconds(settings.count("drain-timeout-s"));
  }
  (*log)->info("{} {}: model {}, context {} tokens; joining {}", role, announce.name,
               announce.model, announce.context_tokens, settings.text("join"));
  int code = k_exit_done;
  {
    Node node(*routers, gate, std::move(prepared), clock, *log, stopping);
    auto stopped = stop.addBranch().then([] { return k_exit_done; });
    auto refused = node.refused().then([] { return k_exit_failed; });
    code = stopped.exclusiveJoin(kj::mv(refused)).wait(io.waitScope);
    end_at_the_next_signal(k_exit_failed);
    if (!node.leave()) code = k_exit_failed;
  }
  stopping.end();
  return code;
}

}  // namespace

void add_node(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("node", "A target or a draft model that joins a server");
  auto flags = std::make_shared<SettingFlags>();
  flags->add(*command, node_setting_names());
  command->footer("Example: outrider node --join 127.0.0.1:8090 --model qwen2.5-coder-0.5b");
  command->callback([flags, &action] {
    action = [flags]() -> int {
      capture_stop_signals();
      const auto settings = flags->resolve();
      if (!settings) return report(settings.error());
      return run_node(*settings);
    };
  });
}

}  // namespace outrider::tools
