#pragma once

#include <vector>

#include "tools/settings.hpp"

namespace outrider::tools {

/// Settings of one matter, as `--help` and `config show` list them.
struct SettingTopic {
  const char* title;
  std::vector<Setting> settings;
};

/// Every setting there is, without its value: `Settings` copies the default.
std::vector<SettingTopic> setting_topics();

}  // namespace outrider::tools
