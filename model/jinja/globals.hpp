#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.hpp"

namespace outrider::model::jinja {

/// Jinja's own globals and those that transformers adds: range, dict, namespace, joiner,
/// raise_exception, strftime_now.
std::vector<std::pair<std::string, Value>> make_globals();

}  // namespace outrider::model::jinja
