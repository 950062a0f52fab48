#pragma once

#include <caf/send.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/peer_tier.hpp"
#include "kernels/ops.hpp"
#include "schema/messages.hpp"
#include "tests/sim/cluster/cold_tier.hpp"
#include "tests/sim/cluster/lines.hpp"
#include "tests/sim/cluster/network.hpp"
#include "tests/sim/cluster/paged_engine.hpp"
#include "tests/sim/cluster/runtime.hpp"
#include "tests/sim/cluster/scenario.hpp"
#include "tests/sim/cluster/stepwise_draft.hpp"

namespace outrider::sim::cluster {

enum class Kind : uint8_t { gateway, target, draft };

/// The one that all serve.
inline constexpr const char* k_model = "tiny";
/// Of the other model's tokens (PagedEngine::Options::twist).
inline constexpr uint64_t k_twist = 1;

/// Who is to know the routers.
using RoutedHandle = caf::typed_actor<caf::reacts_to<schema::RouterFound>>;

/// A place for a process, which may be restarted: each time it is another one.
struct Slot {
  Kind kind = Kind::target;
  uint32_t number = 0;  ///< Among those of its kind.
  bool is_stranger = false;
  Duration step{0};  ///< What a step of its engine takes.
  uint64_t worker = 0;

  ProcessId process = 0;        ///< 0: it is down.
  schema::RouterHandle router;  ///< Of a gateway, as is its desk.
  schema::FrontDeskHandle desk;
  RoutedHandle routed;                        ///< A worker.
  std::vector<caf::strong_actor_ptr> linked;  ///< The gateways' routers as it was told of them.
  std::shared_ptr<PagedEngine> engine;
  std::shared_ptr<Disk> disk;       ///< Of a target with a store; stays when its process goes.
  std::shared_ptr<ColdTier> store;  ///< On it.
  std::shared_ptr<actors::PeerTier> peers;
  std::shared_ptr<StepwiseDraft> draft;
  bool is_stepping = false;
  bool is_leaving = false;               ///< A target that was asked to stop.
  bool is_patient = false;               ///< And is given the time that it takes.
  TimePoint stalled_until{0};            ///< Its engine is in a step until then.
  uint32_t slowness = 1;                 ///< Its steps take so many times as long.
  std::optional<TimePoint> hangs_since;  ///< Its actors do nothing, but nobody says so.
  bool is_beyond_help = false;           ///< What hangs or stalls of it does so for ever.

  bool up() const { return process != 0; }
  std::string name() const;
};

/// The processes of a cluster, their real actors and what is between them. The first slots are the
/// gateways, each with a router of its own. Workers look for all of these four times a second, as
/// cluster/router_link does.
class Cluster {
 public:
  Cluster(const Scenario& scenario, Random& random);
  ~Cluster();

  Runtime& runtime() { return runtime_; }
  Network& network() { return network_; }
  Lines& lines() { return lines_; }
  const std::vector<Slot>& slots() const { return slots_; }
  std::span<const Slot> gateways() const { return std::span(slots_).first(scenario_.gateways); }
  size_t index_of(const Slot& slot) const { return static_cast<size_t>(&slot - slots_.data()); }
  /// Blocks that targets got from stores, and from each other.
  uint64_t blocks_loaded() const;
  uint64_t blocks_handed_over() const;
  /// The slot whose process it is now; null: it was another life.
  const Slot* slot_of(ProcessId process) const;

  void start(size_t slot);
  void kill(size_t slot, bool in_flight);
  /// In order, but at once: what it still has it gives up.
  void end(size_t slot);
  /// A target is asked to stop: it ends by itself, its process does not.
  void leave(size_t slot, bool is_patient);
  void pause(size_t slot) { network_.pause(slots_[slot].process); }
  void resume(size_t slot) { network_.resume(slots_[slot].process); }
  bool paused(size_t slot) const {
    return slots_[slot].up() && runtime_.paused(slots_[slot].process);
  }
  void stall(size_t slot, Duration time) { slots_[slot].stalled_until = runtime_.now() + time; }
  void slow_down(size_t slot, uint32_t slowness) { slots_[slot].slowness = slowness; }
  void set_disk(size_t slot, Duration most, bool fails);
  void hang(size_t slot);
  void go_on(size_t slot);
  /// What it has now stays: heal() leaves it alone.
  void give_up(size_t slot) { slots_[slot].is_beyond_help = true; }
  /// Everything runs, but what is beyond help, and everybody reaches everybody.
  void heal();

  /// The front desk's process does not matter: it is told at once.
  template <class Message>
  void tell(const Slot& slot, Message message) {
    caf::anon_send(slot.desk, std::move(message));
    runtime_.run_actors();
  }

 private:
  void start_gateway(Slot& slot);
  void start_target(Slot& slot, size_t index);
  /// What is below its pool.
  std::shared_ptr<model::BlockTier> start_tier(Slot& slot);
  void start_draft(Slot& slot, size_t index);
  void drop(Slot& slot);
  schema::Announce announce_of(const Slot& slot);
  void look_for_routers();
  void look_for(const Slot& gateway, const Slot& worker, caf::strong_actor_ptr& linked);
  void wake(size_t index);
  void step(size_t index, ProcessId process);

  const Scenario& scenario_;
  Random& random_;
  std::shared_ptr<kernels::Ops> ops_ = kernels::make_ref_ops();  ///< Of all pools.
  Runtime runtime_;
  Network network_;
  Lines lines_;
  uint64_t blocks_loaded_ = 0;       ///< By processes that are dead,
  uint64_t blocks_handed_over_ = 0;  ///< the same.
  std::vector<Slot> slots_;
};

}  // namespace outrider::sim::cluster
