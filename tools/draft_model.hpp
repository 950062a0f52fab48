#pragma once

#include <spdlog/logger.h>

#include <caf/actor_system.hpp>
#include <memory>
#include <optional>
#include <string>

#include "actors/draft_actor.hpp"
#include "actors/draft_loop.hpp"
#include "actors/target_actor.hpp"
#include "base/clock.hpp"
#include "base/result.hpp"
#include "model/engine.hpp"
#include "model/loaded_model.hpp"
#include "schema/messages.hpp"

namespace outrider::tools {

/// A model that drafts for another one; `competes`: for cores.
struct DraftModel {
  std::shared_ptr<const model::LoadedModel> model;
  std::string name;
  model::EngineOptions options;
  bool competes = false;
  uint32_t rows = 1;  ///< Of a step, as DraftRuns::Options::rows_max.
};

/// What takes memory and time.
struct PreparedDraft {
  std::shared_ptr<const model::LoadedModel> model;
  std::unique_ptr<model::Engine> engine;
  schema::Announce announce;
  bool competes = false;
  uint32_t rows = 1;
  size_t routers = 1;    ///< As DraftSetup has it.
  bool answers = false;  ///< Requests for the model itself, too.
};
Result<PreparedDraft> prepare_draft(const DraftModel& draft, const Clock& clock);

/// A draft actor and its engine, and a target actor of the same engine where it answers requests.
/// Without a router it waits for RouterFound.
class RunningDraft {
 public:
  RunningDraft(caf::actor_system& system, const schema::RouterHandle& router, PreparedDraft draft,
               const Clock& clock, const std::shared_ptr<spdlog::logger>& log);
  ~RunningDraft();
  RunningDraft(const RunningDraft&) = delete;
  RunningDraft& operator=(const RunningDraft&) = delete;

  const actors::DraftActor& actor() const { return actor_; }
  /// A tenant's cached blocks; none: everyone's.
  void forget_cached(const std::optional<std::string>& tenant) const;

 private:
  std::weak_ptr<actors::DraftLoop> loop_;  ///< Its actors'.
  actors::DraftActor actor_;
  actors::TargetActor target_;  ///< Null: it only drafts.
};

}  // namespace outrider::tools
