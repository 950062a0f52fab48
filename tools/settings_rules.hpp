#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Of which command settings are: a node has no clients of its own.
enum class Command : uint8_t { serve, node };

/// Looks at settings that are good one by one. A contradiction is an error that names the setting;
/// what was given and has no effect is a warning.
Result<std::vector<std::string>> check_together(const Settings& settings,
                                                Command command = Command::serve);

}  // namespace outrider::tools
