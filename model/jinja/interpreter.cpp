#include "model/jinja/interpreter.hpp"

#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/globals.hpp"
#include "model/jinja/objects.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {

namespace {

using Kind = Value::Kind;

}  // namespace

// -- scopes
// ----------------------------------------------------------------------------------------
Value* Scope::find_here(std::string_view name) {
  for (auto& [known, value] : variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  if (Value* old = find_here(name)) {
    *old = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

Interpreter::ScopeGuard::ScopeGuard(Interpreter& in, Scope* parent)
    : in_(in), scope_(std::make_unique<Scope>()), outer_(in.scope_) {
  scope_->parent = parent;
  in_.scope_ = scope_.get();
}

Interpreter::ScopeGuard::~ScopeGuard() {
  in_.scope_ = outer_;
  if (scope_->captured) in_.captured_scopes_.push_back(std::move(scope_));
}

Scope* Interpreter::capture_scope() {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) {
    budget_.charge(k_kept_work);
    scope->captured = true;
  }
  return scope_;
}

// -- one render
// ------------------------------------------------------------------------------------
Interpreter::Interpreter(const RenderLimits& limits, std::chrono::sys_seconds now)
    : budget_(limits.work, limits.nesting), output_bytes_max_(limits.output_bytes), now_(now) {}

Interpreter::~Interpreter() {
  for (const auto& object : kept_) release(*object);
}

std::string Interpreter::render(const Body& body, const Dict& variables) {
  for (auto& [name, value] : make_globals()) globals_.set(name, std::move(value));
  for (const auto& [name, value] : variables.items) globals_.set(name.text(), value);
  // What the template sets hides what it was given, but does not replace it.
  in_scope(&globals_, [&] { return run(body); });
  return std::move(output_);
}

Value Interpreter::eval(const Expr& expr) {
  const Nesting nesting(budget_);
  budget_.charge(k_node_work);
  line_ = expr.line;
  return expr.evaluate(*this);
}

Flow Interpreter::run(const Body& body) {
  const Nesting nesting(budget_);
  for (const StatementPtr& statement : body) {
    budget_.charge(k_node_work);
    line_ = statement->line;
    const Flow flow = statement->execute(*this);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

std::string Interpreter::capture(const Body& body, Flow& flow) {
  std::string text;
  capture_into(text, [&] { flow = run(body); });
  return text;
}

void Interpreter::emit(std::string_view text) {
  budget_.charge(text.size());
  if (text.size() > output_bytes_max_ - out_->size()) {
    throw TemplateError(ErrorCode::too_large, "the rendered prompt is over " +
                                                  std::to_string(output_bytes_max_) + " bytes");
  }
  out_->append(text);
}

Args Interpreter::eval_args(const CallArgs& args) {
  Args out;
  for (const ExprPtr& arg : args.positional) out.positional.push_back(eval(*arg));
  for (const auto& [name, arg] : args.keywords) out.keywords.emplace_back(name, eval(*arg));
  if (args.star != nullptr) {
    for (Value& item : elements(eval(*args.star))) out.positional.push_back(std::move(item));
  }
  if (args.double_star == nullptr) return out;
  const Value more = eval(*args.double_star);
  if (!more.is(Kind::dict)) fail_value("argument after ** must be a mapping");
  for (const auto& [name, value] : more.dict().items) {
    if (!name.is_string()) fail_value("keywords must be strings");
    for (const auto& [known, old] : out.keywords) {
      if (known == name.text()) fail_value("got multiple values for argument '" + known + "'");
    }
    budget_.charge(out.keywords.size());
    out.keywords.emplace_back(name.text(), value);
  }
  return out;
}

// -- variables
// -------------------------------------------------------------------------------------
Value Interpreter::lookup(std::string_view name) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    if (const Value* found = scope->find_here(name)) return *found;
  }
  return Value::undefined(name);
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.parts.empty() && target.attribute.empty()) {
    set(target.name, value);
    return;
  }
  if (target.parts.empty()) {
    const Value object = lookup(target.name);
    auto* space =
        object.is(Kind::object) ? dynamic_cast<Namespace*>(object.object().get()) : nullptr;
    if (space == nullptr) fail_value("cannot assign attribute on non-namespace object");
    space->set(target.attribute, value);
    return;
  }
  const std::vector<Value> parts = elements(value);
  if (parts.size() != target.parts.size()) {
    fail_value("cannot unpack " + std::to_string(parts.size()) + " values into " +
               std::to_string(target.parts.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], parts[i]);
}

// -- values
// ----------------------------------------------------------------------------------------
Value Interpreter::text(std::string text, bool safe) {
  budget_.charge(k_text_work + text.size());
  return Value(std::move(text), safe);
}

Value Interpreter::list(std::vector<Value> items, ListKind kind) {
  budget_.charge(k_element_work * items.size());
  return make_list(std::move(items), kind);
}

Value Interpreter::call(const Value& callee, const Args& args) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (!callee.is(Kind::object) || !callee.object()->callable()) {
    fail_value("'" + std::string(type_name(callee)) + "' object is not callable");
  }
  const Nesting nesting(budget_);
  const std::shared_ptr<Object> object = callee.object();
  return object->call(*this, args);
}

std::vector<Value> Interpreter::elements(const Value& value) {
  std::vector<Value> out;
  if (value.is_undefined()) return out;
  if (value.is(Kind::list)) {
    const List& list = value.list();
    const size_t from = list.kind == ListKind::generator ? list.consumed : 0;
    out.assign(list.items.begin() + static_cast<ptrdiff_t>(from), list.items.end());
    if (list.kind == ListKind::generator) list.consumed = list.items.size();
  } else if (value.is(Kind::dict)) {
    for (const auto& [key, item] : value.dict().items) out.push_back(key);
  } else if (value.is_string()) {
    const std::string& text = value.text();
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      decode_at(text, at);
      out.push_back(this->text(text.substr(begin, at - begin)));
    }
  } else {
    fail_value("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  budget_.charge(k_element_work * out.size());
  return out;
}

}  // namespace outrider::model::jinja
