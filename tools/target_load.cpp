#include "tools/target_load.hpp"

#include <chrono>
#include <utility>

#include "base/system.hpp"
#include "link/nccl_api.hpp"
#include "link/nccl_upgrade.hpp"
#include "tools/engine_options.hpp"
#include "tools/kv_plan.hpp"
#include "tools/kv_store.hpp"

namespace outrider::tools {
namespace {

/// For a process's first communicator.
constexpr Duration k_nccl_cold = std::chrono::seconds(30);

/// For lines to other targets. Null: nobody wants it, or there is none, and a warning says why.
std::shared_ptr<link::Nccl> nccl_for(const Settings& settings, const Clock& clock,
                                     spdlog::logger& log) {
  const auto gpu = gpu_of(settings.text("device"));
  if (settings.text("cluster-nccl") != "auto" || !gpu) return nullptr;
  const auto open = [&]() -> Result<std::shared_ptr<link::Nccl>> {
    std::shared_ptr<link::Nccl> nccl;
    OUTRIDER_ASSIGN(nccl, link::open_nccl(*gpu));
    OUTRIDER_TRY(link::warm_up(*nccl, clock, k_nccl_cold));
    return nccl;
  };
  auto nccl = open();
  if (nccl) return *nccl;
  log.warn("cluster-nccl: lines go over TCP: {}", nccl.error().message);
  return nullptr;
}

}  // namespace

Result<TargetPlan> plan_target(const Settings& settings) {
  TargetPlan plan;
  OUTRIDER_ASSIGN(plan.store, store_options(settings));
  plan.options = engine_options(settings);
  OUTRIDER_ASSIGN(plan.options.cluster_secret, cluster_secret(settings));
  const bool own = settings.text("cluster-secret-file").empty();
  if (plan.store && own) keep_own_secret(*plan.store, plan.options.cluster_secret);
  return plan;
}

Result<PreparedTarget> load_target(const Settings& settings, const std::string& name,
                                   model::EngineOptions options, const TargetSurroundings& around,
                                   const std::atomic<bool>& stop) {
  spdlog::logger& log = *around.log;
  const TimePoint start = around.clock.now();
  const LoadWords words = {.inform = [&](const std::string& text) { log.info("{}", text); },
                           .warn = [&](const std::string& text) { log.warn("{}", text); }};
  words.inform("loading " + settings.text("model"));
  auto model = load_with_progress(settings, &stop, words);
  if (!model) return model.error();
  log.info("loaded in {:.1f} s; measuring this machine (seconds; longer while others compute)",
           to_seconds(around.clock.now() - start));
  OUTRIDER_TRY(plan_kv_kinds(*model, settings,
                             {.clock = around.clock,
                              .now = wall_time(),
                              .go_on = [&] { return !stop; },
                              .inform = words.inform,
                              .warn = words.warn},
                             options));
  TargetSurroundings all = around;
  all.host_bytes = kv_host_bytes(settings);
  all.needs_host_bytes = settings.text("kv-host-mb") != "auto";
  all.lines.nccl.nccl = nccl_for(settings, around.clock, log);
  return prepare_target(std::move(*model), name, options, all);
}

}  // namespace outrider::tools
