#pragma once

#include <string>

#include "model/jinja/value.hpp"

namespace outrider::model::jinja {

/// Python's str() and repr().
std::string to_text(Budget& budget, const Value& value);
std::string to_repr(Budget& budget, const Value& value);

/// Options of Python's json.dumps, with the defaults that transformers sets.
struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< one level of it; none: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

/// Fails on values that JSON has no form for.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace outrider::model::jinja
