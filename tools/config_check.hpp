#pragma once

#include <string>

#include "base/result.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Looks at what the settings name, without loading or making it: the model's header and its
/// context, the addresses, directories, API keys, store and secret, and how they go together. The
/// model's path, or an error that names the setting.
Result<std::string> check_configuration(const Settings& settings);

}  // namespace outrider::tools
