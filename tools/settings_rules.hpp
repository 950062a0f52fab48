#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Whose settings they are: a gateway has no engine of its own, a node no clients, a local command
/// (`generate`) no draft model.
enum class Command : uint8_t { serve, gateway, node, local };

/// `serve` as its setting `roles` has it.
Command serving_command(const Settings& settings);
/// Of a file: a node's where it names a node's role, or a server to join.
Command command_of(const Settings& settings);

/// Looks at settings that are good one by one. A contradiction is an error that names the setting;
/// what was given and has no effect is a warning.
Result<std::vector<std::string>> check_together(const Settings& settings,
                                                Command command = Command::serve);

}  // namespace outrider::tools
