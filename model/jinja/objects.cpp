#include "model/jinja/objects.hpp"

#include <algorithm>

#include "model/jinja/print.hpp"

namespace outrider::model::jinja {

// -- namespace
// -------------------------------------------------------------------------------------
void Namespace::set(std::string_view name, Value value) {
  for (auto& [known, old] : attributes_) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  attributes_.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  for (const auto& [known, value] : attributes_) {
    if (known == name) return value;
  }
  return std::nullopt;
}

Value Namespace::call(Interpreter&, const Args&) {
  fail_value("a namespace is not callable");
}

// -- macros
// ----------------------------------------------------------------------------------------
std::optional<Value> MacroObject::attribute(std::string_view name) {
  if (name == "name") return Value(code_.name);
  if (name == "catch_kwargs") return Value(code_.uses_kwargs);
  if (name == "catch_varargs") return Value(code_.uses_varargs);
  if (name == "caller") return Value(code_.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& [parameter, fallback] : code_.parameters) names.emplace_back(parameter);
  return make_list(std::move(names), ListKind::tuple);
}

Value MacroObject::call(Interpreter& in, const Args& args) {
  return in.in_scope(scope_, [&] {
    bind_parameters(in, args);
    Flow flow = Flow::next;
    return in.text(in.capture(code_.body, flow));
  });
}

/// Sets parameters, then defaults (which may use parameters), then what is left over.
void MacroObject::bind_parameters(Interpreter& in, const Args& args) const {
  const auto fail_call = [&](const std::string& what) {
    fail_value("macro '" + code_.name + "' " + what);
  };
  const size_t count = code_.parameters.size();
  std::vector<bool> given(count, false);
  for (size_t i = 0; i < std::min(count, args.positional.size()); ++i) {
    in.set(code_.parameters[i].first, args.positional[i]);
    given[i] = true;
  }
  Dict surplus;
  Value caller = Value::undefined("No caller defined");
  for (const auto& [name, value] : args.keywords) {
    const auto found = std::find_if(
        code_.parameters.begin(), code_.parameters.end(),
        [&, &wanted = name](const auto& parameter) { return parameter.first == wanted; });
    if (found != code_.parameters.end()) {
      const auto at = static_cast<size_t>(found - code_.parameters.begin());
      if (given[at]) fail_call("got multiple values for argument '" + name + "'");
      in.set(name, value);
      given[at] = true;
    } else if (name == "caller" && code_.uses_caller) {
      caller = value;
    } else if (code_.uses_kwargs) {
      surplus.set(in.budget(), Value(name), value);
    } else {
      fail_call("takes no keyword argument '" + name + "'");
    }
  }
  if (args.positional.size() > count && !code_.uses_varargs) {
    fail_call("takes not more than " + std::to_string(count) + " argument(s)");
  }
  for (size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const auto& [name, fallback] = code_.parameters[i];
    in.set(name, fallback != nullptr
                     ? in.eval(*fallback)
                     : Value::undefined("parameter '" + name + "' was not provided"));
  }
  if (code_.uses_caller) in.set("caller", caller);
  if (code_.uses_kwargs) in.set("kwargs", make_dict(std::move(surplus)));
  if (!code_.uses_varargs) return;
  const size_t used = std::min(count, args.positional.size());
  in.set("varargs",
         in.list({args.positional.begin() + static_cast<ptrdiff_t>(used), args.positional.end()},
                 ListKind::tuple));
}

void release(Object& object) {
  if (auto* space = dynamic_cast<Namespace*>(&object)) space->clear();
  if (auto* loop = dynamic_cast<Loop*>(&object)) loop->clear();
}

}  // namespace outrider::model::jinja
