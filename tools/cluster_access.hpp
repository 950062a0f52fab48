#pragma once

#include <string>
#include <vector>

#include "cluster/credentials.hpp"
#include "cluster/endpoint.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// By what this process and the others of its cluster know each other, as the settings name it.
/// The error names the setting whose file cannot be read or used.
Result<cluster::Credentials> cluster_credentials(const Settings& settings);

/// Whether those who reach the cluster's address must prove who they are, where others than this
/// machine's own reach it. Warnings, or an error of the setting `cluster`.
Result<std::vector<std::string>> check_cluster_access(const Settings& settings,
                                                      const cluster::Credentials& credentials);

/// Whom a node joins. An error of the setting `join` or `cluster-tls-name` where there is nobody,
/// or somebody on another machine who need not prove who it is.
Result<std::vector<cluster::Endpoint>> routers_to_join(const Settings& settings,
                                                       const cluster::Credentials& credentials);

}  // namespace outrider::tools
