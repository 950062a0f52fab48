#include <algorithm>
#include <charconv>

#include "model/jinja/filters.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/select.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

/// Arguments without the first `count` positional ones.
Args rest_of(const Args& args, size_t count) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(count),
                         args.positional.end());
  rest.keywords = args.keywords;
  return rest;
}

std::string_view name_argument(const Args& args, size_t at, std::string_view what) {
  if (args.positional.size() <= at || !args.positional[at].is_string()) {
    fail_value(std::string(what) + " takes a name");
  }
  return args.positional[at].text();
}

Value map_attribute(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"attribute", "default"}, "map");
  const std::vector<Value> path = attribute_path(*given[0]);
  std::vector<Value> out;
  for (const Value& item : in.elements(value)) {
    Value found = item;
    for (const Value& step : path) {
      found = get_path(in, found, {step});
      if (found.is_undefined() && given[1] != nullptr && !given[1]->is_none()) found = *given[1];
    }
    out.push_back(std::move(found));
  }
  return in.list(std::move(out), ListKind::generator);
}

Value map_filter(Interpreter& in, const Value& value, const Args& args) {
  if (!truthy(value)) return in.list({}, ListKind::generator);
  const bool by_attribute =
      args.positional.empty() &&
      std::any_of(args.keywords.begin(), args.keywords.end(),
                  [](const auto& keyword) { return keyword.first == "attribute"; });
  if (by_attribute) return map_attribute(in, value, args);
  const std::string name(name_argument(args, 0, "map"));
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) {
    throw TemplateError(ErrorCode::unsupported, "no filter named '" + name + "'");
  }
  const Args rest = rest_of(args, 1);
  const Nesting nesting(in.budget());
  std::vector<Value> out;
  for (const Value& item : in.elements(value)) {
    if (item.is_string()) in.budget().charge(item.text().size());
    out.push_back(filter(in, item, rest));
  }
  return in.list(std::move(out), ListKind::generator);
}

/// select, reject, selectattr, rejectattr: keeps what the test, or truth, says.
template <bool keep, bool by_attribute>
Value select_filter(Interpreter& in, const Value& value, const Args& args) {
  if (!truthy(value)) return in.list({}, ListKind::generator);
  std::vector<Value> path;
  if (by_attribute) {
    if (args.positional.empty()) fail_value("Missing parameter for attribute name");
    path = attribute_path(args.positional[0]);
  }
  constexpr size_t first = by_attribute ? 1 : 0;
  TestFunction test = nullptr;
  Args rest;
  if (args.positional.size() > first) {
    const std::string name(name_argument(args, first, "select"));
    test = find_test(name);
    if (test == nullptr) {
      throw TemplateError(ErrorCode::unsupported, "no test named '" + name + "'");
    }
    rest = rest_of(args, first + 1);
  }
  std::vector<Value> out;
  for (Value& item : in.elements(value)) {
    const Value subject = by_attribute ? get_path(in, item, path) : item;
    const bool holds = test != nullptr ? test(in, subject, rest) : truthy(subject);
    if (holds == keep) out.push_back(std::move(item));
  }
  return in.list(std::move(out), ListKind::generator);
}

Value default_filter(Interpreter&, const Value& value, const Args& args) {
  const auto given = bind(args, {"default_value", "boolean"}, "default");
  const bool replaced = value.is_undefined() || (bool_or(given[1], false) && !truthy(value));
  if (!replaced) return value;
  return given[0] != nullptr ? *given[0] : Value("");
}

Value attr_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"name"}, "attr", 1);
  if (!given[0]->is_string()) fail_value("attribute name must be string");
  if (value.is_undefined()) fail_undefined(value);
  // Attributes only, never a mapping's keys.
  if (value.is(Kind::object)) return in.get_attribute(value, given[0]->text());
  if (auto method = find_method(value, given[0]->text())) return *std::move(method);
  return Value::undefined("'" + std::string(type_name(value)) + " object' has no attribute '" +
                          given[0]->text() + "'");
}

constexpr FilterEntry k_select_filters[] = {
    {"map", map_filter},
    {"select", select_filter<true, false>},
    {"reject", select_filter<false, false>},
    {"selectattr", select_filter<true, true>},
    {"rejectattr", select_filter<false, true>},
    {"default", default_filter},
    {"d", default_filter},
    {"attr", attr_filter},
};

}  // namespace

std::span<const FilterEntry> select_filters() {
  return k_select_filters;
}

std::vector<Value> attribute_path(const Value& attribute) {
  std::vector<Value> path;
  if (attribute.is_none()) return path;
  if (!attribute.is_string()) return {attribute};
  const std::string& text = attribute.text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index =
        parsed.ec == std::errc() && parsed.ptr == part.data() + part.size() && part.front() != '-';
    path.push_back(is_index ? Value(index) : Value(part));
    begin = end + 1;
  }
  return path;
}

Value get_path(Interpreter& in, Value value, const std::vector<Value>& path) {
  for (const Value& step : path) value = in.get_item(value, step);
  return value;
}

}  // namespace outrider::model::jinja
