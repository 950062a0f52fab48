#pragma once

#include <vector>

#include "tools/settings.hpp"

namespace outrider::tools {

/// Every setting there is, without its value: `Settings` copies the default.
std::vector<Setting> setting_table();

}  // namespace outrider::tools
