#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/metrics.hpp"
#include "base/result.hpp"
#include "gateway/viewer.hpp"
#include "kvstore/cold_store.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// The store that the settings name; none where store-dir is empty. The error is of the field
/// "store-dir".
Result<std::optional<kvstore::ColdStoreOptions>> store_options(const Settings& settings);

/// Where the store's own secret is.
std::string own_secret_path(const std::string& directory);
/// Whether anything stands there: a link to nothing does, and a start refuses it.
bool has_own_secret(const std::string& directory);
/// The same path; the secret is made if it is not there, so that a restart finds the blocks again.
/// The error is of the field "store-dir".
Result<std::string> secret_file(const std::string& directory);
/// Lets a store write the secret of this process again where its directory was deleted: else a
/// restart would make another, and find nothing of what was stored since.
void keep_own_secret(kvstore::ColdStoreOptions& store, const std::string& secret);

/// Who has the store open: a process id, or -1 if it is not told (a process of another container);
/// 0: nobody. Only asks, and takes no lock that anybody could meet. Not for a process that has the
/// store open itself: it would lose its lock.
pid_t store_user(const std::string& directory);

/// For GET /cluster.
nlohmann::ordered_json describe_store(const kvstore::ColdStats& stats,
                                      const gateway::Viewer& viewer);

/// Brings the store's instruments up to date.
void update_store_metrics(const kvstore::ColdStats& stats, StoreMetrics& metrics);

}  // namespace outrider::tools
