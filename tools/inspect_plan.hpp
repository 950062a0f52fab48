#pragma once

#include <string>

#include "tools/command.hpp"
#include "tools/kv_plan.hpp"

namespace outrider::tools {

/// A plan of `kv-kind: auto` for people: each candidate with its figures and what became of it.
std::string plan_text(const std::string& path, const StoredKvPlan& stored);

/// Adds `inspect plan FILE|DIR`.
void add_inspect_plan(CLI::App& inspect, Action& action);

}  // namespace outrider::tools
