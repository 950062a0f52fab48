#include <algorithm>

#include "model/jinja/objects.hpp"

namespace outrider::model::jinja {
namespace {

Value cycle_method(Interpreter&, const Value& self, const Args& args) {
  return dynamic_cast<Loop&>(*self.object()).cycle(args);
}

Value changed_method(Interpreter& in, const Value& self, const Args& args) {
  return dynamic_cast<Loop&>(*self.object()).changed(in, args);
}

/// The items that pass the loop's own `if`, which does not see `loop`.
std::vector<Value> filtered(Interpreter& in, const For& statement, const Value& values,
                            Scope* scope) {
  std::vector<Value> items = in.elements(values);
  if (statement.test == nullptr) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    const bool keep = in.in_scope(scope, [&] {
      in.assign(statement.target, item);
      return truthy(in.eval(*statement.test));
    });
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

}  // namespace

std::optional<Value> Loop::attribute(std::string_view name) {
  const size_t count = items_.size();
  if (name == "index0") return Value(index_);
  if (name == "index") return Value(index_ + 1);
  if (name == "revindex0") return Value(count - index_ - 1);
  if (name == "revindex") return Value(count - index_);
  if (name == "length") return Value(count);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(index_ + 1 == count);
  if (name == "depth0") return Value(depth0_);
  if (name == "depth") return Value(depth0_ + 1);
  if (name == "previtem") {
    return index_ > 0 ? items_[index_ - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index_ + 1 < count ? items_[index_ + 1] : Value::undefined("there is no next item");
  }
  const Function::Code code = name == "cycle"     ? cycle_method
                              : name == "changed" ? changed_method
                                                  : nullptr;
  if (code == nullptr) return std::nullopt;
  return Value(std::shared_ptr<Object>(
      std::make_shared<Function>(name, code, Value(std::shared_ptr<Object>(shared_from_this())))));
}

Value Loop::call(Interpreter& in, const Args& args) {
  if (!statement_.recursive) {
    fail_value("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (args.positional.size() != 1 || !args.keywords.empty()) {
    fail_value("loop() takes one argument");
  }
  std::string text;
  in.capture_into(text, [&] { run_loop(in, statement_, args.positional[0], scope_, depth0_ + 1); });
  return in.text(std::move(text));
}

std::string Loop::describe() const {
  return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
}

Value Loop::cycle(const Args& args) const {
  if (args.positional.empty()) fail_value("no items for cycling given");
  return args.positional[index_ % args.positional.size()];
}

Value Loop::changed(Interpreter& in, const Args& args) {
  const bool same =
      kept_ && std::equal(args.positional.begin(), args.positional.end(), last_changed_.begin(),
                          last_changed_.end(),
                          [&](const Value& a, const Value& b) { return equal(in.budget(), a, b); });
  if (!kept_) in.keep(shared_from_this());
  kept_ = true;
  last_changed_ = args.positional;
  return Value(!same);
}

Flow run_loop(Interpreter& in, const For& statement, const Value& values, Scope* scope,
              size_t depth0) {
  std::vector<Value> items = filtered(in, statement, values, scope);
  // The scope that the loop stands in, also for later calls of itself from inside.
  Scope* outer = scope != nullptr      ? scope
                 : statement.recursive ? in.capture_scope()
                                       : in.current_scope();
  const auto loop = std::make_shared<Loop>(statement, std::move(items), outer, depth0);
  const Value loop_value{std::shared_ptr<Object>(loop)};
  bool any_completed = false;
  for (size_t i = 0; i < loop->items().size(); ++i) {
    loop->move_to(i);
    const Flow flow = in.in_scope(outer, [&] {
      in.set("loop", loop_value);
      in.assign(statement.target, loop->items()[i]);
      return in.run(statement.body);
    });
    any_completed |= flow == Flow::next;
    if (flow == Flow::break_loop) break;
  }
  // Jinja's own reading of `else`: no round came to its end, be it by break or continue.
  if (any_completed) return Flow::next;
  return in.in_scope(outer, [&] { return in.run(statement.otherwise); });
}

}  // namespace outrider::model::jinja
