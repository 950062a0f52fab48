#pragma once

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>
#include <string>

#include "tools/command.hpp"

namespace outrider::tools {

/// `outrider inspect cluster`: what a running server's /cluster says.
void add_inspect_cluster(CLI::App& inspect, Action& action);

/// The body of /cluster, or an error of one line.
Result<nlohmann::ordered_json> fetch_cluster(const std::string& url, const std::string& api_key);

/// For people. Any JSON will do; nothing in it moves the cursor.
std::string cluster_text(const nlohmann::json& cluster);

}  // namespace outrider::tools
