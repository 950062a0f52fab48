#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja/ast.hpp"
#include "model/jinja/value.hpp"

namespace outrider::model::jinja {

/// Names and values of one block; macros keep the scopes that they were written in.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;
  bool captured = false;  ///< a macro refers to it: lives as long as the render

  Value* find_here(std::string_view name);
  void set(std::string_view name, Value value);
};

struct RenderLimits {
  uint64_t work;
  uint32_t nesting;
  size_t output_bytes;
};

/// The state of one render: scopes, output, budget. Used by one thread, once. Throws
/// TemplateError; whoever catches it asks `line()` where it was.
class Interpreter {
 public:
  Interpreter(const RenderLimits& limits, std::chrono::sys_seconds now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string render(const Body& body, const Dict& variables);
  uint32_t line() const { return line_; }
  std::chrono::sys_seconds now() const { return now_; }
  Budget& budget() { return budget_; }

  // -- running nodes
  Value eval(const Expr& expr);
  Flow run(const Body& body);
  /// The output of `body` as text.
  std::string capture(const Body& body, Flow& flow);
  /// Runs `work` with its output going to `text`.
  template <class Work>
  void capture_into(std::string& text, Work&& work) {
    const OutputGuard guard(*this, text);
    work();
  }
  void emit(std::string_view text);
  Args eval_args(const CallArgs& args);

  // -- variables
  Value lookup(std::string_view name);
  void set(std::string_view name, Value value) { scope_->set(name, std::move(value)); }
  void assign(const Target& target, const Value& value);
  /// Runs `work` in a scope of its own inside `parent` (the current one if null).
  template <class Work>
  auto in_scope(Scope* parent, Work&& work) {
    budget_.charge(k_scope_work);
    const ScopeGuard guard(*this, parent != nullptr ? parent : scope_);
    return work();
  }
  Scope* current_scope() { return scope_; }
  /// The current scope, kept for as long as the render runs.
  Scope* capture_scope();

  // -- values
  Value call(const Value& callee, const Args& args);
  Value get_attribute(const Value& object, std::string_view name);
  Value get_item(const Value& object, const Value& index);
  /// Elements as a `for` sees them; fails if there are none to see. Empties a generator.
  std::vector<Value> elements(const Value& value);
  /// New text or list, paid for.
  Value text(std::string text, bool safe = false);
  Value list(std::vector<Value> items, ListKind kind = ListKind::list);
  /// Objects that can come to hold themselves are emptied at the end of the render.
  void keep(std::shared_ptr<Object> object) { kept_.push_back(std::move(object)); }

 private:
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& in, Scope* parent);
    ~ScopeGuard();
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter& in_;
    std::unique_ptr<Scope> scope_;
    Scope* outer_;
  };

  class OutputGuard {
   public:
    OutputGuard(Interpreter& in, std::string& out)
        : in_(in), outer_(std::exchange(in.out_, &out)) {}
    ~OutputGuard() { in_.out_ = outer_; }
    OutputGuard(const OutputGuard&) = delete;
    OutputGuard& operator=(const OutputGuard&) = delete;

   private:
    Interpreter& in_;
    std::string* outer_;
  };

  Budget budget_;
  const size_t output_bytes_max_;
  const std::chrono::sys_seconds now_;
  Scope globals_;
  Scope* scope_ = &globals_;
  std::string output_;
  std::string* out_ = &output_;
  uint32_t line_ = 1;
  std::vector<std::unique_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Object>> kept_;
};

}  // namespace outrider::model::jinja
