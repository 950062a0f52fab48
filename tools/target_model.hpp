#pragma once

#include <spdlog/logger.h>

#include <atomic>
#include <caf/actor_system.hpp>
#include <memory>
#include <string>

#include "actors/engine_loop.hpp"
#include "actors/target_actor.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "kvstore/cold_store.hpp"
#include "kvstore/warm_store.hpp"
#include "model/engine.hpp"
#include "model/loaded_model.hpp"
#include "schema/messages.hpp"

namespace outrider::tools {

/// What takes memory and time.
struct PreparedTarget {
  std::shared_ptr<const model::LoadedModel> model;
  std::unique_ptr<model::Engine> engine;
  std::shared_ptr<kvstore::WarmStore> warm;  ///< Null: none.
  schema::Announce announce;
  std::string kv_kind;  ///< as kv_kinds_text writes it
  model::SpeculationOptions speculation;
  bool takes_drafts = false;    ///< Of models, here or in other processes.
  bool draft_competes = false;  ///< For cores.
  size_t routers = 1;           ///< As TargetSetup has it,
  Duration leaves_within = std::chrono::milliseconds(limits::drain_timeout_ms);  ///< the same,
  Duration hangs_after{0};                                                       ///< the same,
  actors::PeerLines lines;                                                       ///< the same,
  std::shared_ptr<actors::PeerTier> peers;                                       ///< and the same.
};

/// What a target has around it.
struct TargetSurroundings {
  const Clock& clock;
  std::shared_ptr<spdlog::logger> log;
  std::shared_ptr<kvstore::ColdStore> store;  ///< Null: none.
  actors::PeerLines lines = {};               ///< To other targets; without a dial there are none.
  uint64_t host_bytes = 0;                    ///< Of the host, for what the KV pool gives up,
  bool needs_host_bytes = false;              ///< which somebody asked for: else it goes without.
};

/// The engine's memory, and a probe of the machine's speed. Any thread. `name` is the model's.
Result<PreparedTarget> prepare_target(std::shared_ptr<const model::LoadedModel> model,
                                      const std::string& name, const model::EngineOptions& options,
                                      const TargetSurroundings& around);

/// A target actor and its engine. Without a router it waits for RouterFound.
class RunningTarget {
 public:
  RunningTarget(caf::actor_system& system, const schema::RouterHandle& router,
                PreparedTarget target, const Clock& clock, std::shared_ptr<spdlog::logger> log);
  ~RunningTarget();
  RunningTarget(const RunningTarget&) = delete;
  RunningTarget& operator=(const RunningTarget&) = delete;

  const actors::TargetActor& actor() const { return actor_; }
  /// Null: there is none.
  const std::shared_ptr<kvstore::WarmStore>& warm() const { return warm_; }
  /// Null once it has stopped.
  std::shared_ptr<actors::EngineLoop> engine() const { return loop_->load().lock(); }

 private:
  using Watched = std::atomic<std::weak_ptr<actors::EngineLoop>>;

  std::shared_ptr<kvstore::WarmStore> warm_;
  std::shared_ptr<Watched> loop_ = std::make_shared<Watched>();
  actors::TargetActor actor_;
};

}  // namespace outrider::tools
