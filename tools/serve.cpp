#include <kj/async-io.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/utf8.hpp"
#include "gateway/gateway.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tools/background_load.hpp"
#include "tools/banner.hpp"
#include "tools/bounded_stop.hpp"
#include "tools/cluster_access.hpp"
#include "tools/command.hpp"
#include "tools/config_check.hpp"
#include "tools/counted.hpp"
#include "tools/embedded_cluster.hpp"
#include "tools/engine_options.hpp"
#include "tools/settings_rules.hpp"
#include "tools/stop_signals.hpp"
#include "tools/target_load.hpp"
#include "tools/thread_room.hpp"
#include "tools/version.hpp"

namespace outrider::tools {
namespace {

/// Of a path, or of a fetched name, which may have dots.
std::string draft_name(const std::string& setting) {
  const std::filesystem::path path(setting);
  return utf8_replace_invalid(
      (path.extension() == ".gguf" ? path.stem() : path.filename()).string());
}

/// ":8080" means all interfaces; "off" means no port.
std::string bind_address(const std::string& setting) {
  if (setting == "off") return "";
  return setting.starts_with(':') ? "*" + setting : setting;
}

gateway::GatewayOptions gateway_options(const Settings& settings) {
  gateway::GatewayOptions options;
  options.http_address = bind_address(settings.text("http"));
  options.rpc_address = bind_address(settings.text("rpc"));
  options.api_key_file = settings.text("api-key-file");
  options.admin_tenant = settings.text("admin-tenant");
  options.version = k_version;
  options.log_prompts = settings.flag("log-prompts");
  options.http.cors_origins = settings.text("cors-origins");
  if (!settings.text("store-dir").empty()) {
    options.other_descriptors += limits::kv_store_descriptors;
  }
  if (settings.text("cluster") != "off") {
    options.other_descriptors += limits::cluster_descriptors;
  }
  options.drain_timeout_ms = static_cast<uint32_t>(settings.count("drain-timeout-s") * 1000);
  return options;
}

Listening listening_at(const Settings& settings, const gateway::Gateway& gateway) {
  return {.http = with_port(settings.text("http"), gateway.http_port()),
          .rpc = settings.text("rpc") == "off"
                     ? ""
                     : with_port(settings.text("rpc"), gateway.rpc_port()),
          .has_keys = !settings.text("api-key-file").empty()};
}

/// Adds the flag that chooses another port.
Error with_advice(Error error) {
  if (error.field == "http" || error.field == "rpc" || error.field == "cluster") {
    error.message += "; choose another address with --" + error.field + " HOST:PORT";
  }
  return error;
}

/// Where nodes join; empty: nowhere.
Result<std::string> listen_for_nodes(const Settings& settings, EmbeddedCluster& cluster,
                                     std::vector<schema::Served> expected) {
  const std::string& address = settings.text("cluster");
  if (address == "off") return std::string();
  cluster::Endpoint endpoint;
  OUTRIDER_ASSIGN(endpoint, cluster::parse_endpoint(address, "cluster"));
  cluster::Credentials credentials;
  OUTRIDER_ASSIGN(credentials, cluster_credentials(settings));
  uint16_t port = 0;
  OUTRIDER_ASSIGN(port, cluster.listen(endpoint, std::move(credentials), std::move(expected)));
  return with_port(address, port);
}

/// What of a gateway's settings all targets have to have.
void expect_settings(const Settings& settings, AnswerTraits& traits) {
  for (const char* name : {"ctx", "local-window"}) {
    if (settings.is_given(name)) traits.emplace_back(name, settings.text(name));
  }
  if (!settings.is_given("kv-kind") || settings.text("kv-kind") == "auto") return;
  const kernels::KvKinds kinds = engine_options(settings).kv_kinds;
  traits.emplace_back("kv-kind of keys", kernels::kv_key_kind_text(kinds));
  traits.emplace_back("kv-kind of values", std::string(kernels::kv_kind_name(kinds.v)));
}

/// What targets are to serve, as far as it is known before a first one does. `text` has a gateway
/// alone: whoever has an engine would have to load it first.
std::vector<schema::Served> expected_targets(const Settings& settings,
                                             const model::ModelText& text) {
  schema::Served model{.model = text.name};
  if (text.tokenizer) {
    model.traits = {{"tokenizer", to_hex(text.tokenizer->fingerprint())}};
    expect_settings(settings, model.traits);
  }
  std::vector<schema::Served> expected = {std::move(model)};
  if (uses_draft_model(settings)) expected.push_back({.model = draft_name(settings.text("draft"))});
  return expected;
}

Result<void> load_draft(const Settings& settings, const EmbeddedCluster& cluster,
                        const LoadWords& words, const std::atomic<bool>& stop,
                        EmbeddedCluster::Prepared& prepared) {
  words.inform("loading the draft model " + settings.text("draft"));
  auto model = load_draft_with_progress(settings, &stop, words);
  if (!model) return model.error();
  model::EngineOptions options =
      draft_engine_options(settings, settings.count("draft-kv-memory-mb"));
  options.context_tokens = static_cast<uint32_t>(settings.count("ctx"));
  options.shortens_context = true;
  return cluster.add_draft({.model = std::move(*model),
                            .name = draft_name(settings.text("draft")),
                            .options = options,
                            .competes = plan_draft_threads(settings).competes,
                            .rows = static_cast<uint32_t>(settings.count("draft-rows"))},
                           prepared);
}

/// The model and its engine, and maybe a draft model and its own.
Result<EmbeddedCluster::Prepared> load(const Settings& settings, const EmbeddedCluster& cluster,
                                       const std::string& name, model::EngineOptions options,
                                       spdlog::logger& log, const std::atomic<bool>& stop) {
  auto target = load_target(settings, name, std::move(options), cluster.surroundings(), stop);
  if (!target) return target.error();
  EmbeddedCluster::Prepared prepared{std::move(*target), {}};
  const bool may_be_joined = settings.text("cluster") != "off";
  prepared.target.takes_drafts =
      takes_draft_models(settings) && (may_be_joined || uses_draft_model(settings));
  if (uses_draft_model(settings)) {
    const LoadWords words = {.inform = [&](const std::string& text) { log.info("{}", text); },
                             .warn = [&](const std::string& text) { log.warn("{}", text); }};
    OUTRIDER_TRY(load_draft(settings, cluster, words, stop, prepared));
  }
  return prepared;
}

/// Waits for SIGTERM, lets admitted streams finish, and stops at a second signal or the timeout. An
/// exit code: whether all of them could.
int serve_until_stopped(kj::AsyncIoContext& io, kj::Promise<void> stop, gateway::Gateway& gateway,
                        BoundedStop& stopping, spdlog::logger& log) {
  stop.wait(io.waitScope);
  stopping.enter("draining");
  log.info("draining: {}; a second signal fails what is open, a third ends the process",
           counted(gateway.open_requests(), "open request"));
  auto forced = stop_signal(io.unixEventPort).fork();
  bool is_forced = false;
  const bool drained = gateway.drain()
                           .exclusiveJoin(forced.addBranch().then([&] {
                             is_forced = true;
                             return false;
                           }))
                           .wait(io.waitScope);
  if (!drained) log.warn("stopping; given up: {}", counted(gateway.open_requests(), "request"));
  stopping.enter("telling clients");
  // Signals are listened to meanwhile: an echo is to be heard when it comes.
  auto another = is_forced ? stop_signal(io.unixEventPort) : forced.addBranch();
  gateway.stop().exclusiveJoin(another.then([] { end_at_once(k_exit_failed); })).wait(io.waitScope);
  return drained ? k_exit_done : k_exit_failed;
}

/// Loads a target of this process. An exit code: it came to nothing.
std::optional<int> start_with_target(kj::AsyncIoContext& io, kj::Promise<void> stop_signalled,
                                     const Settings& settings, const std::string& name,
                                     const model::EngineOptions& options, EmbeddedCluster& cluster,
                                     BoundedStop& stopping, spdlog::logger& log) {
  BackgroundLoad<EmbeddedCluster::Prepared> loading([&](const std::atomic<bool>& stop) {
    return load(settings, cluster, name, options, log, stop);
  });
  auto* loaded = loading.wait(io.waitScope, kj::mv(stop_signalled));
  if (loaded == nullptr) return give_up(loading, stopping, log);
  if (!*loaded) return report(loaded->error());
  const uint32_t blocks = (*loaded)->target.announce.blocks_total;
  cluster.start(std::move(**loaded));
  const gateway::ServedModel& served = cluster.served_models().front();
  const auto warning =
      context_warning(settings, served.context_tokens, served.text.config.context_length);
  const bool is_told = settings.text("kv-kind") != "auto";  // by check_serving
  if (!warning.empty() && !is_told) log.warn("{}", warning);
  log.info("{}", pool_text(settings, blocks, served.context_tokens));
  return std::nullopt;
}

/// Waits for a target in another process. An exit code: it came to nothing.
std::optional<int> start_as_gateway(kj::AsyncIoContext& io, kj::Promise<void> stop,
                                    model::ModelText text, EmbeddedCluster& cluster,
                                    BoundedStop& stopping, spdlog::logger& log) {
  log.info("waiting for a target that serves {}", text.name);
  const auto wait = cluster.wait_for_target();
  std::optional<schema::Announce> found;
  wait->found()
      .then([&](schema::Announce target) { found = std::move(target); })
      .exclusiveJoin(kj::mv(stop))
      .wait(io.waitScope);
  if (!found) {
    stopping.enter("ending the wait for a target");
    end_at_the_next_signal(k_exit_failed);
    return k_exit_done;
  }
  log.info("{} serves it: context {} tokens", found->name, found->context_tokens);
  cluster.start(std::move(text), *found);
  return std::nullopt;
}

int serve(const Settings& settings) {
  auto log = make_logger({settings.text("log-level"), settings.flag("log-json")});
  if (!log) return report(log.error());
  if (const auto room = check_thread_room(serving_threads()); !room) return report(room.error());
  BoundedStop stopping(stop_limit(std::chrono::seconds(settings.count("drain-timeout-s"))), *log);
  const auto checked = check_serving(settings);
  if (!checked) return report(checked.error());
  for (const std::string& warning : checked->warnings) (*log)->warn("{}", warning);
  const bool is_gateway = serving_command(settings) == Command::gateway;
  auto plan = is_gateway ? TargetPlan() : plan_target(settings);
  if (!plan) return report(plan.error());
  auto text = is_gateway ? model::load_model_text(checked->model) : model::ModelText();
  if (!text) return report(text.error());
  auto io = kj::setupAsyncIo();
  auto stop = stop_signal(io.unixEventPort).fork();
  const SteadyClock clock;
  const std::string name = served_name(settings, checked->model);
  text->name = name;
  ServingMetrics metrics(name);
  EmbeddedCluster cluster(clock, metrics, *log, std::move(plan->store), stopping);

  gateway::Gateway::Parts parts = {
      .clock = clock,
      .metrics = metrics,
      .log = *log,
      .cluster_json =
          [&cluster](const gateway::Viewer& viewer) { return cluster.describe(viewer); },
      .before_metrics = [&cluster] { cluster.update_metrics(); },
      .has_target = [&cluster] { return cluster.has_target(); },
      .reset_cache =
          [&cluster](gateway::CacheReset what, gateway::CacheResetAnswer answer) {
            cluster.reset_cache(what, std::move(answer));
          }};
  if (is_gateway) parts.not_ready = {"no target", "no target has joined yet"};
  auto gateway = gateway::Gateway::open(io, gateway_options(settings), std::move(parts));
  if (!gateway) return report(with_advice(gateway.error()));
  const auto joined_at = listen_for_nodes(settings, cluster, expected_targets(settings, *text));
  if (!joined_at) return report(with_advice(joined_at.error()));
  const Listening listening = listening_at(settings, **gateway);
  for (const std::string& warning : exposure_warnings(listening)) (*log)->warn("{}", warning);
  if (!joined_at->empty()) (*log)->info("nodes join at {}", *joined_at);

  const auto ended = is_gateway ? start_as_gateway(io, stop.addBranch(), std::move(*text), cluster,
                                                   stopping, **log)
                                : start_with_target(io, stop.addBranch(), settings, name,
                                                    plan->options, cluster, stopping, **log);
  if (ended == k_exit_failed || ended == k_exit_usage) return *ended;
  int code = ended.value_or(k_exit_done);
  if (!ended) {
    (*gateway)->serve(cluster.served_models(), cluster.backend());
    std::cout << banner(name, cluster.device(), listening) << std::endl;
    code = serve_until_stopped(io, stop.addBranch(), **gateway, stopping, **log);
    end_at_the_next_signal(k_exit_failed);
  }
  stopping.enter("closing client connections");
  gateway->reset();
  cluster.stop();
  stopping.end();
  return code;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("serve", "All roles in one process: HTTP and Cap'n Proto");
  auto flags = std::make_shared<SettingFlags>();
  flags->add(*command);
  command->footer("Example: outrider serve --model smollm2-135m --http 127.0.0.1:8080");
  command->callback([flags, &action] {
    action = [flags]() -> int {
      capture_stop_signals();
      const auto settings = flags->resolve();
      if (!settings) return report(settings.error());
      return serve(*settings);
    };
  });
}

}  // namespace outrider::tools
