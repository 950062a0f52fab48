#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/interpreter.hpp"

namespace outrider::model::jinja {

/// `namespace(…)`: the one thing that a template can change.
class Namespace final : public Object {
 public:
  void set(std::string_view name, Value value);
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return false; }
  Value call(Interpreter& in, const Args& args) override;
  std::string describe() const override { return "<Namespace>"; }
  void clear() { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

/// A function of ours, with its receiver if it is a method.
class Function final : public Object {
 public:
  using Code = Value (*)(Interpreter& in, const Value& self, const Args& args);
  Function(std::string_view name, Code code, Value self = {})
      : Object(std::vector<Value>{self}), name_(name), code_(code), self_(std::move(self)) {}

  std::optional<Value> attribute(std::string_view) override { return std::nullopt; }
  bool callable() const override { return true; }
  Value call(Interpreter& in, const Args& args) override { return code_(in, self_, args); }
  std::string describe() const override { return "<function " + name_ + ">"; }

 private:
  std::string name_;
  Code code_;
  Value self_;
};

/// A macro, or the body of a call block, with the scope that it was written in.
class MacroObject final : public Object {
 public:
  MacroObject(const MacroCode& code, Scope* scope) : code_(code), scope_(scope) {}

  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& in, const Args& args) override;
  std::string describe() const override { return "<Macro '" + code_.name + "'>"; }

 private:
  void bind_parameters(Interpreter& in, const Args& args) const;

  const MacroCode& code_;  // owned by the template, which outlives the render
  Scope* scope_;
};

/// `loop`, inside a for. Calling it renders the same loop over other items (recursive).
class Loop final : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const For& statement, std::vector<Value> items, Scope* scope, size_t depth0)
      : Object(items),
        statement_(statement),
        items_(std::move(items)),
        scope_(scope),
        depth0_(depth0) {}

  const std::vector<Value>& items() const { return items_; }
  void move_to(size_t index) { index_ = index; }
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& in, const Args& args) override;
  std::string describe() const override;
  void clear() { last_changed_.clear(); }

  Value cycle(const Args& args) const;
  Value changed(Interpreter& in, const Args& args);

 private:
  const For& statement_;
  const std::vector<Value> items_;
  Scope* scope_;
  const size_t depth0_;
  size_t index_ = 0;
  std::vector<Value> last_changed_;
  bool kept_ = false;
};

/// Runs a for over `items`; used by the statement and by recursive calls of `loop`.
Flow run_loop(Interpreter& in, const For& statement, const Value& items, Scope* scope,
              size_t depth0);

/// Drops what the object refers to, so that no cycle survives a render.
void release(Object& object);

}  // namespace outrider::model::jinja
