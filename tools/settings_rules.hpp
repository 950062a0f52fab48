#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Whose settings they are: a node has no clients of its own, a local command (`generate`) no draft
/// model.
enum class Command : uint8_t { serve, node, local };

/// Looks at settings that are good one by one. A contradiction is an error that names the setting;
/// what was given and has no effect is a warning.
Result<std::vector<std::string>> check_together(const Settings& settings,
                                                Command command = Command::serve);

}  // namespace outrider::tools
