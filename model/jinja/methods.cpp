#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/methods.hpp"
#include "model/jinja/objects.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

// -- dict
// ------------------------------------------------------------------------------------------
Value dict_items(Interpreter& in, const Value& self, const Args& args) {
  bind(args, {}, "items");
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict().items) {
    out.push_back(in.list({key, value}, ListKind::tuple));
  }
  return in.list(std::move(out), ListKind::items);
}

Value dict_keys(Interpreter& in, const Value& self, const Args& args) {
  bind(args, {}, "keys");
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict().items) out.push_back(key);
  return in.list(std::move(out), ListKind::keys);
}

Value dict_values(Interpreter& in, const Value& self, const Args& args) {
  bind(args, {}, "values");
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict().items) out.push_back(value);
  return in.list(std::move(out), ListKind::values);
}

Value dict_get(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"key", "default"}, "get", 1);
  check_hashable(in.budget(), *given[0]);
  if (const Value* found = self.dict().find(in.budget(), *given[0])) return *found;
  return given[1] != nullptr ? *given[1] : Value::none();
}

Value dict_copy(Interpreter&, const Value& self, const Args& args) {
  bind(args, {}, "copy");
  return self;
}

// -- list
// ------------------------------------------------------------------------------------------
Value list_index(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"value"}, "index", 1);
  const auto& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(in.budget(), items[i], *given[0])) return Value(i);
  }
  fail_value("the value is not in the list");
}

Value list_count(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"value"}, "count", 1);
  size_t count = 0;
  for (const Value& item : self.list().items) count += equal(in.budget(), item, *given[0]);
  return Value(count);
}

Value list_copy(Interpreter&, const Value& self, const Args& args) {
  bind(args, {}, "copy");
  return self;
}

constexpr MethodEntry k_dict_methods[] = {
    {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values},
    {"get", dict_get},     {"copy", dict_copy},
};
constexpr MethodEntry k_list_methods[] = {
    {"index", list_index}, {"count", list_count}, {"copy", list_copy}};

std::span<const MethodEntry> methods_of(const Value& self) {
  if (self.is(Kind::dict)) return k_dict_methods;
  if (self.is_string()) return string_methods();
  if (!self.is(Kind::list)) return {};
  const auto all = std::span<const MethodEntry>(k_list_methods);
  if (self.list().kind == ListKind::list) return all;
  if (self.list().kind <= ListKind::range) return all.first(2);
  return {};
}

}  // namespace

std::optional<Value> find_method(const Value& self, std::string_view name) {
  const auto more = self.is_string() ? string_predicates() : std::span<const MethodEntry>();
  for (const auto methods : {methods_of(self), more}) {
    for (const MethodEntry& method : methods) {
      if (method.name != name) continue;
      return Value(std::shared_ptr<Object>(std::make_shared<Function>(name, method.code, self)));
    }
  }
  return std::nullopt;
}

// -- arguments
// -------------------------------------------------------------------------------------
std::vector<const Value*> bind(const Args& args, std::initializer_list<std::string_view> names,
                               std::string_view function, size_t required) {
  const auto fail_call = [&](const std::string& what) {
    fail_value(std::string(function) + "() " + what);
  };
  std::vector<const Value*> out(names.size(), nullptr);
  if (args.positional.size() > names.size()) {
    fail_call("takes at most " + std::to_string(names.size()) + " arguments");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) out[i] = &args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    const auto* const found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail_call("got an unexpected keyword argument '" + name + "'");
    const Value*& slot = out[static_cast<size_t>(found - names.begin())];
    if (slot != nullptr) fail_call("got multiple values for argument '" + name + "'");
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (out[i] == nullptr) {
      fail_call("is missing the argument '" + std::string(names.begin()[i]) + "'");
    }
  }
  return out;
}

int64_t int_or(const Value* value, int64_t fallback) {
  if (value == nullptr) return fallback;
  if (!value->is_integral()) {
    fail_value("'" + std::string(type_name(*value)) +
               "' object cannot be interpreted as an integer");
  }
  return value->integral();
}

bool bool_or(const Value* value, bool fallback) {
  return value == nullptr ? fallback : truthy(*value);
}

}  // namespace outrider::model::jinja
