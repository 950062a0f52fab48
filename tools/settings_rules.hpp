#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Looks at settings that are good one by one. A contradiction is an error that names the setting;
/// what was given and has no effect is a warning.
Result<std::vector<std::string>> check_together(const Settings& settings);

}  // namespace outrider::tools
