#include <algorithm>

#include "model/jinja/interpreter.hpp"
#include "model/jinja/objects.hpp"
#include "model/jinja/print.hpp"

namespace outrider::model::jinja {

namespace {

/// The outcome of a filter or call block, which has to be text.
void emit_text(Interpreter& in, const Value& value) {
  if (!value.is_string()) {
    fail_value("a block gives text, not " + std::string(type_name(value)));
  }
  in.emit(value.text());
}

}  // namespace

Flow Data::execute(Interpreter& in) const {
  in.emit(text);
  return Flow::next;
}

Flow Print::execute(Interpreter& in) const {
  const Value printed = in.eval(*value);
  if (printed.is_string()) {
    in.emit(printed.text());
  } else {
    in.emit(to_text(in.budget(), printed));
  }
  return Flow::next;
}

Flow If::execute(Interpreter& in) const {
  for (const auto& [test, body] : branches) {
    if (truthy(in.eval(*test))) return in.run(body);
  }
  return in.run(otherwise);
}

Flow LoopControl::execute(Interpreter&) const {
  return flow;
}

Flow For::execute(Interpreter& in) const {
  const Value values = in.eval(*items);
  return run_loop(in, *this, values, nullptr, 0);
}

Flow Set::execute(Interpreter& in) const {
  if (!block) {
    in.assign(target, in.eval(*value));
    return Flow::next;
  }
  Flow flow = Flow::next;
  Value text = in.text(in.in_scope(nullptr, [&] { return in.capture(body, flow); }));
  if (flow != Flow::next) return flow;
  if (value != nullptr) {
    text = in.in_scope(nullptr, [&] {
      in.set({}, text);  // a filter without input reads the variable without a name
      return in.eval(*value);
    });
  }
  in.assign(target, text);
  return Flow::next;
}

Flow Block::execute(Interpreter& in) const {
  // The values of a `with` see each other's outer names only.
  std::vector<Value> values;
  for (const auto& [target, expr] : variables) values.push_back(in.eval(*expr));
  return in.in_scope(nullptr, [&] {
    for (size_t i = 0; i < values.size(); ++i) in.assign(variables[i].first, values[i]);
    if (filter == nullptr) return in.run(body);
    Flow flow = Flow::next;
    in.set({}, in.text(in.capture(body, flow)));
    emit_text(in, in.eval(*filter));
    return flow;
  });
}

Flow Macro::execute(Interpreter& in) const {
  in.set(code.name,
         Value(std::shared_ptr<Object>(std::make_shared<MacroObject>(code, in.capture_scope()))));
  return Flow::next;
}

Flow CallBlock::execute(Interpreter& in) const {
  const Value callee = in.eval(*call->callee);
  Args args = in.eval_args(call->args);
  args.keywords.emplace_back(
      "caller",
      Value(std::shared_ptr<Object>(std::make_shared<MacroObject>(code, in.capture_scope()))));
  emit_text(in, in.call(callee, args));
  return Flow::next;
}

}  // namespace outrider::model::jinja
