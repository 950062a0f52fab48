#include "tests/sim/cluster/cluster.hpp"

#include <caf/stateful_actor.hpp>
#include <utility>

#include "actors/draft_actor.hpp"
#include "actors/front_desk.hpp"
#include "actors/target_actor.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "router/router_actor.hpp"
#include "tests/sim/cluster/block_content.hpp"

namespace outrider::sim::cluster {
namespace {

using std::chrono::milliseconds;

constexpr const char* k_fingerprint = "fp";
constexpr const char* k_tokenizer = "tokens";
/// As cluster::k_reconnect_interval.
constexpr milliseconds k_look_again{250};
constexpr uint32_t k_draft_context_tokens = 256;
constexpr uint32_t k_draft_depth = 4;
/// Far longer than a step, with the slowest engine.
constexpr milliseconds k_hangs_after{2'000};
/// Longer than any request takes that nothing happens to.
constexpr milliseconds k_leaves_within{120'000};
/// Of a tight engine: 64 tokens of two choices or more, so that they take blocks from each other.
constexpr uint32_t k_tight_blocks = 8;
constexpr uint32_t k_tight_choices = 8;
/// Where prompts are long: the longest fits, and a few of them at once.
constexpr uint32_t k_long_context = 4 * limits::prompt_part_tokens_max;
constexpr uint32_t k_long_blocks = 4 * k_long_context / k_block_tokens;
/// Above a store: the longest answer fits, and what is not in use is soon only there.
constexpr uint32_t k_small_blocks = 32;

}  // namespace

std::string Slot::name() const {
  constexpr const char* k_names[] = {"gateway", "target", "draft"};
  return k_names[static_cast<size_t>(kind)] + std::to_string(number) + "#" +
         std::to_string(process);
}

Cluster::Cluster(const Scenario& scenario, Random& random)
    : scenario_(scenario),
      random_(random),
      network_(runtime_, random, scenario.travel),
      lines_(runtime_, network_, random, scenario.travel, scenario.line_message,
             [this](const std::string& gate) { return slots_.at(std::stoul(gate)).process; }) {
  const auto add = [&](Kind kind, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      Slot& slot = slots_.emplace_back();
      slot.kind = kind;
      slot.number = i;
      slot.step = milliseconds(5 + random_.below(30));
    }
  };
  add(Kind::gateway, scenario.gateways);
  add(Kind::target, scenario.targets + (scenario.has_stranger ? 1 : 0));
  slots_.back().is_stranger = scenario.has_stranger;
  add(Kind::draft, scenario.drafts);
  for (size_t i = 0; i < slots_.size(); ++i) start(i);
  look_for_routers();
}

Cluster::~Cluster() {
  runtime_.stop();
}

const Slot* Cluster::slot_of(ProcessId process) const {
  for (const Slot& slot : slots_) {
    if (slot.process == process) return &slot;
  }
  return nullptr;
}

uint64_t Cluster::blocks_loaded() const {
  uint64_t count = blocks_loaded_;
  for (const Slot& slot : slots_) count += slot.store ? slot.store->loaded() : 0;
  return count;
}

uint64_t Cluster::blocks_handed_over() const {
  uint64_t count = blocks_handed_over_;
  for (const Slot& slot : slots_) count += slot.peers ? slot.peers->taken() : 0;
  return count;
}

void Cluster::start(size_t index) {
  Slot& slot = slots_[index];
  slot.process = runtime_.begin_process();
  slot.is_stepping = false;
  slot.is_leaving = slot.is_patient = false;
  slot.stalled_until = TimePoint{0};
  slot.slowness = 1;
  slot.hangs_since.reset();
  slot.is_beyond_help = false;
  // A worker's id may survive a restart, its incarnation never does.
  if (slot.worker == 0 || random_.chance(0.5f)) slot.worker = 1 + random_.next_u32();
  if (slot.kind == Kind::gateway) start_gateway(slot);
  if (slot.kind == Kind::target) start_target(slot, index);
  if (slot.kind == Kind::draft) start_draft(slot, index);
  runtime_.run_actors();
}

void Cluster::start_gateway(Slot& slot) {
  slot.router = caf::actor_cast<schema::RouterHandle>(
      runtime_.spawn(slot.process, [](caf::actor_system& system) {
        return system.spawn(router::router_actor, silent_logger());
      }));
  slot.desk = runtime_.spawn(slot.process, [&](caf::actor_system& system) {
    return system.spawn(actors::front_desk,
                        actors::FrontDeskSetup{slot.router,
                                               {{k_model, scenario_.is_mixed ? "" : k_fingerprint}},
                                               scenario_.sessions_max});
  });
}

schema::Announce Cluster::announce_of(const Slot& slot) {
  schema::Announce announce;
  announce.worker = slot.worker;
  announce.incarnation = random_.next_u64();
  announce.name = slot.name();
  announce.model = k_model;
  announce.fingerprint = slot.is_stranger ? "another" : k_fingerprint;
  announce.tokenizer = k_tokenizer;
  announce.context_tokens = scenario_.has_long_prompts ? k_long_context : 4096;
  announce.sequences = scenario_.is_tight ? k_tight_choices / 2 : 32;
  announce.waiting = scenario_.is_tight ? k_tight_choices / 2 : 32;
  announce.block_tokens = k_block_tokens;
  announce.prefill_row_ns = 1000;
  return announce;
}

std::shared_ptr<model::BlockTier> Cluster::start_tier(Slot& slot) {
  if (scenario_.has_stores) {
    if (!slot.disk) slot.disk = std::make_shared<Disk>();
    slot.store = std::make_shared<ColdTier>(slot.disk, runtime_.time(), random_);
  }
  if (!scenario_.has_lines) return slot.store;
  slot.peers =
      std::make_shared<actors::PeerTier>(slot.store, lines_.of(slot.process), silent_logger());
  return slot.peers;
}

void Cluster::start_target(Slot& slot, size_t index) {
  PagedEngine::Options options;
  if (scenario_.has_stores) options.blocks = k_small_blocks;
  if (scenario_.is_tight) options.blocks = k_tight_blocks;
  if (scenario_.has_long_prompts) options.blocks = k_long_blocks;
  if (scenario_.is_tight) options.choices = k_tight_choices;
  options.twist = slot.is_stranger ? k_twist : 0;
  options.leaks = scenario_.bug == PlantedBug::leaked_block;
  options.frees_twice = scenario_.bug == PlantedBug::freed_twice;
  options.ops = ops_;
  options.tier = start_tier(slot);
  slot.engine = std::make_shared<PagedEngine>(options, [this, index] { wake(index); });
  actors::TargetSetup setup;
  setup.announce = announce_of(slot);
  setup.announce.blocks_total = options.blocks;
  setup.routers = scenario_.gateways;
  setup.drafts.depth_max = scenario_.drafts > 0 ? k_draft_depth : 0;
  setup.drafts.duty.always = true;
  setup.hangs_after = k_hangs_after;
  setup.leaves_within = k_leaves_within;
  setup.log = silent_logger();
  if (slot.peers) setup.lines = lines_.of(slot.process);
  setup.peers = slot.peers;
  setup.engine = [engine = slot.engine](actors::EngineListener listener) {
    return engine->open(engine, std::move(listener));
  };
  slot.routed = runtime_.spawn(slot.process, [&](caf::actor_system& system) {
    return system.spawn(actors::target_actor, setup);
  });
}

void Cluster::start_draft(Slot& slot, size_t index) {
  actors::DraftRuns::Options options;
  options.tokenizer = k_tokenizer;
  options.context_tokens = k_draft_context_tokens;
  slot.draft = std::make_shared<StepwiseDraft>(options, [this, index] { wake(index); });
  actors::DraftSetup setup;
  setup.announce = announce_of(slot);
  setup.announce.sequences = scenario_.is_tight ? 2 : 16;
  setup.routers = scenario_.gateways;
  setup.log = silent_logger();
  setup.engine = [draft = slot.draft](actors::DraftListener listener) {
    return draft->open(draft, std::move(listener));
  };
  slot.routed = runtime_.spawn(slot.process, [&](caf::actor_system& system) {
    return system.spawn(actors::draft_actor, setup);
  });
}

void Cluster::kill(size_t index, bool in_flight) {
  Slot& slot = slots_[index];
  if (!slot.up()) return;
  const ProcessId process = std::exchange(slot.process, 0);
  lines_.kill(process, in_flight);
  network_.kill(process, in_flight);
  drop(slot);
}

void Cluster::end(size_t index) {
  Slot& slot = slots_[index];
  const ProcessId process = std::exchange(slot.process, 0);
  runtime_.end_actors(process);
  drop(slot);
  lines_.kill(process, true);
  network_.kill(process, true);
}

void Cluster::drop(Slot& slot) {
  slot.router = nullptr;
  slot.desk = nullptr;
  slot.routed = nullptr;
  slot.linked.clear();
  slot.engine = nullptr;
  if (slot.store) blocks_loaded_ += slot.store->loaded();
  if (slot.peers) blocks_handed_over_ += slot.peers->taken();
  slot.store = nullptr;
  slot.peers = nullptr;
  slot.draft = nullptr;
}

void Cluster::leave(size_t index, bool is_patient) {
  Slot& slot = slots_[index];
  slot.is_leaving = true;
  slot.is_patient = is_patient;
  caf::anon_send(caf::actor_cast<caf::actor>(slot.routed), actors::LeaveNow{});
  runtime_.run_actors();
}

void Cluster::set_disk(size_t index, Duration most, bool fails) {
  Disk& disk = *slots_[index].disk;
  disk.most = most;
  disk.fails = fails;
}

void Cluster::hang(size_t index) {
  slots_[index].hangs_since = runtime_.now();
  runtime_.set_hanging(slots_[index].process, true);
}

void Cluster::go_on(size_t index) {
  slots_[index].hangs_since.reset();
  runtime_.set_hanging(slots_[index].process, false);
  runtime_.run_actors();
}

void Cluster::heal() {
  Travel travel = scenario_.travel;
  travel.lost = travel.repeated = travel.late = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_leaving && !slots_[i].is_patient) kill(i, true);
    if (!slots_[i].up()) start(i);
    if (paused(i)) resume(i);
    if (slots_[i].disk) set_disk(i, Disk().most, false);
    if (slots_[i].is_beyond_help) continue;
    if (slots_[i].hangs_since) go_on(i);
    slots_[i].stalled_until = TimePoint{0};
    slots_[i].slowness = 1;
  }
  network_.heal(travel);
  lines_.calm(travel);
  runtime_.run_actors();
}

void Cluster::look_for_routers() {
  for (Slot& slot : slots_) {
    if (!slot.routed || runtime_.paused(slot.process)) continue;
    slot.linked.resize(gateways().size());
    for (size_t i = 0; i < slot.linked.size(); ++i) look_for(slots_[i], slot, slot.linked[i]);
  }
  runtime_.run_actors();
  runtime_.time().after(k_look_again, [this] { look_for_routers(); });
}

void Cluster::look_for(const Slot& gateway, const Slot& worker, caf::strong_actor_ptr& linked) {
  if (!gateway.up() || !is_dead_proxy(linked)) return;
  if (!network_.reaches(worker.process, gateway.process)) return;
  linked = network_.view(worker.process, caf::actor_cast<caf::strong_actor_ptr>(gateway.router));
  caf::anon_send(worker.routed, schema::RouterFound{caf::actor_cast<schema::RouterHandle>(linked),
                                                    std::to_string(gateway.number)});
}

void Cluster::wake(size_t index) {
  Slot& slot = slots_[index];
  if (!slot.up() || std::exchange(slot.is_stepping, true)) return;
  runtime_.time().after(slot.step * slot.slowness,
                        [this, index, process = slot.process] { step(index, process); });
}

void Cluster::step(size_t index, ProcessId process) {
  Slot& slot = slots_[index];
  if (slot.process != process) return;
  const bool is_stalled = slot.stalled_until > runtime_.now();
  const bool can_step = !runtime_.paused(process) && !is_stalled;
  if (is_stalled && slot.engine && !slot.engine->idle()) {
    slot.engine->hang_in_step(runtime_.now());
  }
  if (can_step && slot.engine) slot.engine->step();
  if (can_step && slot.draft) slot.draft->step();
  slot.is_stepping = false;
  const bool is_idle = slot.engine ? slot.engine->idle() : slot.draft->idle();
  if (!is_idle) wake(index);
  runtime_.run_actors();
}

}  // namespace outrider::sim::cluster
