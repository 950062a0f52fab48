#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/jinja/ast.hpp"

/// What templates can call by name. One table each, looked up while parsing.
namespace outrider::model::jinja {

/// Null if there is none of that name.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};
// The parts of the filter table, by what the filters work on.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> list_filters();
std::span<const FilterEntry> select_filters();
std::span<const FilterEntry> number_filters();

/// A method of a string, list or dict as a callable value; nothing if there is none of that name.
/// Methods that change their object do not exist, as in Jinja's immutable sandbox.
std::optional<Value> find_method(const Value& self, std::string_view name);

/// Positions the arguments by the parameters' names; null where none is given. Fails on surplus,
/// unknown or doubled ones, and when one of the first `required` is absent.
std::vector<const Value*> bind(const Args& args, std::initializer_list<std::string_view> names,
                               std::string_view function, size_t required = 0);

// Typed reading of a bound argument.
int64_t int_or(const Value* value, int64_t fallback);
bool bool_or(const Value* value, bool fallback);

}  // namespace outrider::model::jinja
