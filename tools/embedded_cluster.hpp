#pragma once

#include <spdlog/logger.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "cluster/endpoint.hpp"
#include "cluster/gate.hpp"
#include "gateway/backend.hpp"
#include "gateway/cache_reset.hpp"
#include "gateway/prompt.hpp"
#include "gateway/viewer.hpp"
#include "kvstore/cold_store.hpp"
#include "link/link_end.hpp"
#include "model/engine.hpp"
#include "model/loaded_model.hpp"
#include "schema/messages.hpp"
#include "tools/bounded_stop.hpp"
#include "tools/cluster_view.hpp"
#include "tools/draft_model.hpp"
#include "tools/target_model.hpp"
#include "tools/target_wait.hpp"

namespace outrider::tools {

/// Router and front desk, and in the same process a target and maybe a draft model, which is served
/// as well, or all targets elsewhere: what `outrider serve` runs behind its gateway. Made empty, so
/// that the gateway can already refer to it while the model loads.
class EmbeddedCluster {
 public:
  /// Opens the store, on a thread of its own.
  EmbeddedCluster(const Clock& clock, ServingMetrics& metrics, std::shared_ptr<spdlog::logger> log,
                  std::optional<kvstore::ColdStoreOptions> store, BoundedStop& stopping);
  /// Lets processes on other machines join, there; before the start. The port that it got.
  Result<uint16_t> listen(const cluster::Endpoint& endpoint, cluster::Credentials credentials,
                          std::vector<schema::Served> expected);
  /// Ends all sessions, stops the engine and closes the store: what is queued becomes durable.
  ~EmbeddedCluster();  ///< stops

  /// What takes memory and time. Any thread.
  struct Prepared {
    PreparedTarget target;
    std::optional<PreparedDraft> draft;  ///< A model that drafts for it.
  };
  TargetSurroundings surroundings() const;
  Result<void> add_draft(const DraftModel& draft, Prepared& prepared) const;
  /// Spawns the actors.
  void start(Prepared prepared);
  /// Without a target of its own: looks for a first one that joins. After listen().
  std::unique_ptr<TargetWait> wait_for_target();
  /// Spawns the actors but a target, for what the first one that joined serves.
  void start(model::ModelText text, const schema::Announce& target);

  // Only after the start.
  gateway::Backend& backend();
  const std::vector<gateway::ServedModel>& served_models() const;
  std::string device() const;  ///< For people: "cpu avx512, 2 threads".
  bool has_target() const;     ///< Of the first model: its own, or one that has joined.

  /// No request is open. What requests left for the store goes there, and it closes: may take some
  /// time. Nothing but the destructor is called after it.
  void stop();

  /// Members, roles and load as JSON (GET /cluster), of tenants what the viewer sees.
  std::string describe(const gateway::Viewer& viewer) const;
  /// POST /reset_prefix_cache: the engine's thread answers, or the store's. What waits to be stored
  /// and left the pool is not stored any more.
  void reset_cache(const gateway::CacheReset& what, gateway::CacheResetAnswer answer);
  /// Sets the engine's gauges from its last snapshot.
  void update_metrics();

 private:
  struct Actors;
  struct State;
  void start_desk(std::unique_ptr<State> state);

  const Clock& clock_;
  ServingMetrics& metrics_;
  std::shared_ptr<spdlog::logger> log_;
  BoundedStop& stopping_;
  std::shared_ptr<kvstore::ColdStore> store_;  ///< Null: none.
  std::shared_ptr<cluster::Gate> gate_;        ///< Null: nobody joins.
  const std::shared_ptr<link::LinkCounters> line_counters_ = std::make_shared<link::LinkCounters>();
  /// A gateway's starts before its first target is there.
  const std::shared_ptr<ClusterView> view_ = std::make_shared<ClusterView>();
  std::unique_ptr<Actors> actors_;  ///< The system, and its router.
  std::unique_ptr<State> state_;
};

}  // namespace outrider::tools
