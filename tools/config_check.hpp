#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "model/model_config.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

struct CheckedSettings {
  std::string model;                  ///< the path
  std::vector<std::string> warnings;  ///< each names its setting
  std::vector<Error> errors;          ///< likewise: what stops a start
};

/// What `serve`, with a target of its own or as a gateway, looks at before it opens or loads
/// anything: the model's header, the API keys, and how these and the settings go together. The
/// first error, if there is one.
Result<CheckedSettings> check_serving(const Settings& settings);

/// Likewise of a node that is a target: it has no keys.
Result<CheckedSettings> check_target_node(const Settings& settings);

/// That, and without making it what serving would open: the addresses, directories and secret.
CheckedSettings check_configuration(const Settings& settings);

/// Whether the KV memory, the window and the store's quotas fit a model: warnings, or an error.
Result<std::vector<std::string>> check_kv_sizes(const Settings& settings,
                                                const model::ModelConfig& config);

}  // namespace outrider::tools
