#pragma once

#include <vector>

#include "model/jinja/interpreter.hpp"

namespace outrider::model::jinja {

/// The steps of an attribute argument such as "function.name" or 0.
std::vector<Value> attribute_path(const Value& attribute);
Value get_path(Interpreter& in, Value value, const std::vector<Value>& path);

}  // namespace outrider::model::jinja
