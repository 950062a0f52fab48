#pragma once

#include <span>
#include <string_view>

#include "model/jinja/objects.hpp"

namespace outrider::model::jinja {

struct MethodEntry {
  std::string_view name;
  Function::Code code;
};
std::span<const MethodEntry> string_methods();
/// Those that ask a question of the whole text: isdigit and so on.
std::span<const MethodEntry> string_predicates();

/// The text of an argument that has to be a string.
const std::string& text_arg(const Value* value, std::string_view function);

/// Python's str.split and rsplit; `count` below 0 means all.
Value split_text(Interpreter& in, const std::string& text, const std::string& separator,
                 int64_t count, bool from_right);
Value split_space(Interpreter& in, const std::string& text, int64_t count, bool from_right);
/// str.replace; `count` below 0 means all.
std::string replace_text(Budget& budget, const std::string& text, const std::string& from,
                         const std::string& to, int64_t count);

}  // namespace outrider::model::jinja
