#include <kj/async-io.h>

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/io/middleman.hpp>
#include <caf/send.hpp>
#include <memory>

#include "actors/system_config.hpp"
#include "base/log.hpp"
#include "cluster/router_link.hpp"
#include "tools/background_load.hpp"
#include "tools/command.hpp"
#include "tools/draft_model.hpp"
#include "tools/engine_options.hpp"

namespace outrider::tools {
namespace {

const std::vector<std::string>& node_setting_names() {
  static const std::vector<std::string> names = {"roles",
                                                 "join",
                                                 "model",
                                                 "model-name",
                                                 "device",
                                                 "threads",
                                                 "pin-threads",
                                                 "ctx",
                                                 "kv-memory-mb",
                                                 "block-tokens",
                                                 "max-batch-tokens",
                                                 "weights-cache",
                                                 "draft-rows",
                                                 "log-level",
                                                 "log-json"};
  return names;
}

Result<cluster::Endpoint> router_address(const Settings& settings) {
  const std::string& address = settings.text("join");
  if (address.empty()) {
    return fail(ErrorCode::invalid_argument, "join: where is the server? --join HOST:PORT", "join");
  }
  auto endpoint = cluster::parse_endpoint(address, "join");
  if (endpoint && (endpoint->host.empty() || endpoint->port == 0)) {
    return fail(ErrorCode::invalid_argument,
                "join: \"" + address + "\" needs a host and a port to connect to", "join");
  }
  return endpoint;
}

Result<PreparedDraft> load(const Settings& settings, const Clock& clock, spdlog::logger& log,
                           const std::atomic<bool>& stop) {
  std::string path;
  OUTRIDER_ASSIGN(path, resolve_model(settings.text("model")));
  const LoadWords words = {.inform = [&](const std::string& text) { log.info("{}", text); },
                           .warn = [&](const std::string& text) { log.warn("{}", text); }};
  std::shared_ptr<const model::LoadedModel> model;
  OUTRIDER_ASSIGN(model, load_with_progress(settings, &stop, words));
  DraftModel draft;
  draft.model = std::move(model);
  draft.name = served_name(settings, path);
  draft.options = draft_engine_options(settings, settings.count("kv-memory-mb"));
  draft.rows = static_cast<uint32_t>(settings.count("draft-rows"));
  draft.options.context_tokens = static_cast<uint32_t>(settings.count("ctx"));
  return prepare_draft(draft, clock);
}

/// Its actors, for as long as it lives.
class Node {
 public:
  Node(const cluster::Endpoint& router, PreparedDraft draft, const Clock& clock,
       const std::shared_ptr<spdlog::logger>& log) {
    config_.load<caf::io::middleman>();
    system_ = std::make_unique<caf::actor_system>(config_);
    auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
    refused_ = kj::mv(pair.promise);
    auto ended =
        std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<void>>>(kj::mv(pair.fulfiller));
    draft_ = std::make_unique<RunningDraft>(*system_, schema::RouterHandle(), std::move(draft),
                                            clock, log);
    draft_->actor()->attach_functor([ended] { (*ended)->fulfill(); });
    link_ = cluster::spawn_router_link(
        *system_, {router, caf::actor_cast<cluster::RoutedHandle>(draft_->actor()), log});
  }

  /// Resolves when the cluster will not have it.
  kj::Promise<void> refused() { return kj::mv(refused_); }

 private:
  actors::SystemConfig config_;
  std::unique_ptr<caf::actor_system> system_;  ///< Waits for its actors when it goes.
  kj::Promise<void> refused_ = nullptr;
  std::unique_ptr<RunningDraft> draft_;
  cluster::RouterLink link_;
};

int run_node(const Settings& settings) {
  auto log = make_logger({settings.text("log-level"), settings.flag("log-json")});
  if (!log) return report(log.error());
  const auto router = router_address(settings);
  if (!router) return report(router.error());
  auto io = kj::setupAsyncIo();
  const SteadyClock clock;
  BackgroundLoad<PreparedDraft> loading(
      [&](const std::atomic<bool>& stop) { return load(settings, clock, **log, stop); });
  auto* draft = loading.wait(io);
  if (draft == nullptr) return k_exit_interrupted;
  if (!*draft) return report(draft->error());
  const schema::Announce& announce = (*draft)->announce;
  (*log)->info("draft model {}: context {} tokens; joining {}", announce.model,
               announce.context_tokens, cluster::to_string(*router));
  Node node(*router, std::move(**draft), clock, *log);
  auto stopped = stop_signal(io.unixEventPort).then([] { return k_exit_done; });
  auto refused = node.refused().then([] { return k_exit_failed; });
  const int code = stopped.exclusiveJoin(kj::mv(refused)).wait(io.waitScope);
  (*log)->info("stopped");
  return code;
}

}  // namespace

void add_node(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("node", "A draft model that joins a server");
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
