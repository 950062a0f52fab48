#pragma once

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>

#include "model/gguf.hpp"
#include "tools/command.hpp"

namespace outrider::tools {

/// `outrider inspect model`: metadata and tensors of a GGUF.
void add_inspect_model(CLI::App& inspect, Action& action);

/// The same for programs: each value of the metadata (of an array its type and length), each
/// tensor, and what Outrider makes of it: "config", or "config_error" if it cannot run it.
nlohmann::ordered_json model_json(const model::GgufFile& file);

}  // namespace outrider::tools
