#pragma once

#include "kvstore/inspect.hpp"
#include "tools/command.hpp"

namespace outrider::tools {

/// Adds `outrider inspect kv DIR`.
void add_inspect_kv(CLI::App& inspect, Action& action);

/// What it prints: for people, or as one JSON object.
std::string inspect_text(const kvstore::InspectReport& report);
std::string inspect_json(const kvstore::InspectReport& report);

}  // namespace outrider::tools
