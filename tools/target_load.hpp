#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "kvstore/cold_store.hpp"
#include "model/engine.hpp"
#include "tools/settings.hpp"
#include "tools/target_model.hpp"

/// From settings to a target, as `serve` and `node` have it.
namespace outrider::tools {

struct TargetPlan {
  model::EngineOptions options;
  std::optional<kvstore::ColdStoreOptions> store;  ///< None: without one.
};
/// Takes no time; makes the store's own secret where there is none.
Result<TargetPlan> plan_target(const Settings& settings);

/// Loads the model, chooses its KV kinds and prepares the engine. Looks at `stop` now and then.
Result<PreparedTarget> load_target(const Settings& settings, const std::string& name,
                                   model::EngineOptions options, const TargetSurroundings& around,
                                   const std::atomic<bool>& stop);

}  // namespace outrider::tools
