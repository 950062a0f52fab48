#include "tools/target_model.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <new>
#include <utility>

#include "actors/store_tier.hpp"
#include "actors/warm_tier.hpp"
#include "base/hash.hpp"
#include "base/system.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "model/step_costs.hpp"
#include "model/transformer.hpp"

namespace outrider::tools {
namespace {

/// Of a start, for the KV store to open: a salvage of gigabytes takes longer.
constexpr Duration k_store_wait = std::chrono::seconds(10);
/// A step hangs that takes so long, and so many times what the longest should.
constexpr Duration k_hang = std::chrono::seconds(2);
constexpr int k_hang_steps = 4;

/// Of the blocks that an engine with these options computes.
std::string describe_blocks(const std::string& model, const model::EngineOptions& options) {
  std::string text = model + ' ' + kernels::kv_kinds_text(options.kv_kinds);
  if (options.local_window != 0) text += " window " + std::to_string(options.local_window);
  return text;
}

schema::Announce announcement(const model::Engine& engine, const model::LoadedModel& model,
                              const std::string& name, const model::EngineOptions& options) {
  schema::Announce announce;
  announce.worker = random_bits();
  announce.incarnation = random_bits() >> 11;
  announce.role = schema::Role::target;
  announce.name = "target-0";
  announce.model = name;
  announce.fingerprint = to_hex(engine.fingerprint());
  announce.traits = engine.traits();
  announce.tokenizer = to_hex(model.tokenizer->fingerprint());
  announce.context_tokens = engine.context_tokens();
  announce.sequences = options.sequences;
  announce.waiting = options.waiting;
  announce.blocks_total = engine.stats().blocks_total;
  announce.block_tokens = options.block_tokens;
  return announce;
}

void announce_costs(const model::StepCosts& costs, schema::Announce& announce) {
  announce.prefill_row_ns = costs.prefill_row_ns;
  announce.attention_pair_ps = costs.attention_pair_ps;
  announce.step_rows = costs.rows;
  announce.step_contexts = costs.contexts;
  for (const Duration time : costs.times) {
    announce.step_ns.push_back(static_cast<uint64_t>(time.count()));
  }
}

/// In memory that the model's device copies from and to at full speed.
Result<std::shared_ptr<kvstore::WarmStore>> make_warm_store(const model::LoadedModel& model,
                                                            const model::EngineOptions& options,
                                                            uint64_t bytes) {
  const size_t block_bytes =
      model::kv_geometry(model.config, options.block_tokens, options.kv_kinds).block_bytes();
  const size_t blocks = bytes / block_bytes;
  const auto wrong = [&](ErrorCode code, const std::string& why) {
    return fail(code, "kv-host-mb: " + std::to_string(bytes >> 20) + " MiB " + why, "kv-host-mb");
  };
  if (blocks == 0) {
    return wrong(ErrorCode::invalid_argument,
                 "hold no block, which takes " + std::to_string(block_bytes) + " bytes");
  }
  try {
    kernels::Ops::Buffer memory = model.ops->allocate_host(blocks * block_bytes);
    const auto release = memory.get_deleter();
    return std::make_shared<kvstore::WarmStore>(
        std::shared_ptr<std::byte>(memory.release(), release), block_bytes, blocks);
  } catch (const std::bad_alloc&) {
    return wrong(ErrorCode::io, "cannot be had");
  }
}

}  // namespace

Result<PreparedTarget> prepare_target(std::shared_ptr<const model::LoadedModel> model,
                                      const std::string& name, const model::EngineOptions& options,
                                      const TargetSurroundings& around) {
  auto engine = model::Engine::create(model, options, around.clock);
  if (!engine) return engine.error();
  const model::DecodePlan& plan = (*engine)->decode_plan();
  if (options.decode_plan.is_automatic || !plan.bounds_nothing()) {
    around.log->info("decode plan: {}", model::to_string(plan));
  }
  PreparedTarget prepared;
  prepared.announce = announcement(**engine, *model, name, options);
  const TimePoint begun = around.clock.now();
  const model::StepCosts costs = model::measure_step_costs(**engine, around.clock);
  around.log->info("measured what steps take, in {:.1f} s", to_seconds(around.clock.now() - begun));
  announce_costs(costs, prepared.announce);
  (*engine)->set_step_costs(costs);
  prepared.hangs_after = std::max<Duration>(
      k_hang, k_hang_steps * costs.prefill(options.batch_tokens, (*engine)->context_tokens()));
  std::shared_ptr<model::BlockTier> tier;
  if (around.store) {
    // It has been opening meanwhile: from the first request on it answers, unless that is a
    // salvage.
    if (!around.store->wait_open(k_store_wait)) {
      around.log->warn("the KV store is not open yet: requests compute until it is");
    }
    around.store->describe((*engine)->kv_namespace(), describe_blocks(name, options));
    tier = actors::make_store_tier(around.store);
  }
  if (around.host_bytes > 0 && options.prefix_caching) {
    auto warm = make_warm_store(*model, options, around.host_bytes);
    if (!warm && around.needs_host_bytes) return warm.error();
    if (warm) {
      prepared.warm = std::move(*warm);
      tier = actors::make_warm_tier(prepared.warm, std::move(tier));
    } else {
      around.log->warn("{}: what the KV pool gives up is computed again", warm.error().message);
    }
  }
  if (around.lines.dial && options.prefix_caching) {
    prepared.lines = around.lines;
    prepared.peers = std::make_shared<actors::PeerTier>(tier, around.lines, around.log);
    tier = prepared.peers;
  }
  if (tier) (*engine)->attach_tier(std::move(tier));
  prepared.model = std::move(model);
  prepared.engine = std::move(*engine);
  prepared.kv_kind = kernels::kv_kinds_text(options.kv_kinds);
  prepared.speculation = options.speculation;
  return prepared;
}

RunningTarget::RunningTarget(caf::actor_system& system, const schema::RouterHandle& router,
                             PreparedTarget target, const Clock& clock,
                             std::shared_ptr<spdlog::logger> log)
    : warm_(std::move(target.warm)) {
  auto engine = std::make_shared<std::unique_ptr<model::Engine>>(std::move(target.engine));
  const auto make = [engine, &clock, log, watched = loop_](actors::EngineListener listener) {
    auto loop = std::make_shared<actors::EngineLoop>(actors::make_stepper(std::move(*engine)),
                                                     std::move(listener), clock,
                                                     actors::EngineLoop::Options{.log = log});
    watched->store(loop);
    return loop;
  };
  actors::TargetSetup setup{.announce = std::move(target.announce),
                            .router = router,
                            .routers = target.routers,
                            .engine = make,
                            .drafts = {},
                            .lines = std::move(target.lines),
                            .peers = std::move(target.peers),
                            .leaves_within = target.leaves_within,
                            .hangs_after = target.hangs_after,
                            .log = std::move(log)};
  if (target.takes_drafts) {
    setup.drafts.depth_max = target.speculation.depth_max;
    setup.drafts.duty = {.always = target.speculation.fixed_depth,
                         .competes = target.draft_competes};
  }
  actor_ = system.spawn(actors::target_actor, std::move(setup));
}

RunningTarget::~RunningTarget() {
  caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
}

}  // namespace outrider::tools
