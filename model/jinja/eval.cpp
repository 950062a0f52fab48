#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {

namespace {

using Kind = Value::Kind;

}  // namespace

Value Constant::evaluate(Interpreter&) const {
  return value;
}

Value Name::evaluate(Interpreter& in) const {
  return in.lookup(name);
}

Value ListExpr::evaluate(Interpreter& in) const {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) values.push_back(in.eval(*item));
  return in.list(std::move(values), tuple ? ListKind::tuple : ListKind::list);
}

Value DictExpr::evaluate(Interpreter& in) const {
  Dict dict;
  for (const auto& [key, value] : items) {
    Value name = in.eval(*key);
    dict.set(in.budget(), std::move(name), in.eval(*value));
  }
  return make_dict(std::move(dict));
}

Value Conditional::evaluate(Interpreter& in) const {
  if (truthy(in.eval(*test))) return in.eval(*then);
  if (otherwise != nullptr) return in.eval(*otherwise);
  return Value::undefined("the inline if-expression evaluated to false and has no else");
}

Value Unary::evaluate(Interpreter& in) const {
  return apply_unary(op, in.eval(*operand));
}

Value Binary::evaluate(Interpreter& in) const {
  const Value a = in.eval(*left);
  return apply_binary(in, op, a, in.eval(*right));
}

Value Logical::evaluate(Interpreter& in) const {
  Value value = in.eval(*left);
  return truthy(value) == is_and ? in.eval(*right) : value;
}

Value Concat::evaluate(Interpreter& in) const {
  std::string out;
  for (const ExprPtr& part : parts) {
    const Value value = in.eval(*part);
    out += to_text(in.budget(), value);
  }
  return in.text(std::move(out));
}

Value Compare::evaluate(Interpreter& in) const {
  Value left = in.eval(*first);
  for (const auto& [op, expr] : rest) {
    Value right = in.eval(*expr);
    if (!apply_compare(in, op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value GetAttribute::evaluate(Interpreter& in) const {
  return in.get_attribute(in.eval(*object), name);
}

Value GetItem::evaluate(Interpreter& in) const {
  const Value container = in.eval(*object);
  return in.get_item(container, in.eval(*index));
}

Value GetSlice::evaluate(Interpreter& in) const {
  const Value container = in.eval(*object);
  const Value from = start ? in.eval(*start) : Value::none();
  const Value to = stop ? in.eval(*stop) : Value::none();
  const Value by = step ? in.eval(*step) : Value::none();
  return slice(in, container, from, to, by);
}

Value Call::evaluate(Interpreter& in) const {
  const Value function = in.eval(*callee);
  const Args values = in.eval_args(args);
  return in.call(function, values);
}

namespace {

/// Filters and tests may look at every byte or element of what they are given.
void charge_input(Interpreter& in, const Value& value) {
  if (value.is_string()) in.budget().charge(value.text().size());
  if (value.is(Kind::list)) in.budget().charge(k_element_work * value.list().items.size());
  if (value.is(Kind::dict)) in.budget().charge(k_element_work * value.dict().items.size());
}

}  // namespace

Value Filter::evaluate(Interpreter& in) const {
  const Value value = input != nullptr ? in.eval(*input) : in.lookup("");
  if (function == nullptr) {
    throw TemplateError(ErrorCode::unsupported, "no filter named '" + name + "'");
  }
  const Args values = in.eval_args(args);
  charge_input(in, value);
  return function(in, value, values);
}

Value Test::evaluate(Interpreter& in) const {
  const Value value = in.eval(*input);
  if (function == nullptr) {
    throw TemplateError(ErrorCode::unsupported, "no test named '" + name + "'");
  }
  const Args values = in.eval_args(args);
  charge_input(in, value);
  return Value(function(in, value, values));
}

// -- members
// ---------------------------------------------------------------------------------------
namespace {

/// The element at a place that may count from the end; nothing if there is none.
std::optional<Value> element_at(Interpreter& in, const Value& object, int64_t index) {
  const bool is_list = object.is(Kind::list) && object.list().kind <= ListKind::range;
  if (!is_list && !object.is_string()) return std::nullopt;
  if (object.is_string()) in.budget().charge(object.text().size());
  const size_t size = is_list ? object.list().items.size() : count_code_points(object.text());
  const auto length = static_cast<int64_t>(size);
  if (index < -length || index >= length) return std::nullopt;
  const auto at = static_cast<size_t>(index < 0 ? index + length : index);
  if (is_list) return object.list().items[at];
  const size_t begin = byte_offset(object.text(), at);
  size_t end = begin;
  decode_at(object.text(), end);
  return Value(object.text().substr(begin, end - begin));
}

}  // namespace

Value Interpreter::get_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is(Kind::object)) {
    if (auto found = object.object()->attribute(name)) return *std::move(found);
  } else if (auto method = find_method(object, name)) {
    return *std::move(method);
  }
  if (object.is(Kind::dict)) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return Value::undefined("'" + std::string(type_name(object)) + " object' has no attribute '" +
                          std::string(name) + "'");
}

Value Interpreter::get_item(const Value& object, const Value& index) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is(Kind::dict)) {
    if (const Value* found = object.dict().find(budget_, index)) return *found;
  }
  if (index.is_integral()) {
    if (auto element = element_at(*this, object, index.integral())) return *std::move(element);
  }
  if (index.is_string()) {
    if (object.is(Kind::object)) {
      if (auto found = object.object()->attribute(index.text())) return *std::move(found);
    } else if (auto method = find_method(object, index.text())) {
      return *std::move(method);
    }
  }
  return Value::undefined("'" + std::string(type_name(object)) + " object' has no element " +
                          (index.is_string() ? "'" + index.text() + "'" : to_text(budget_, index)));
}

}  // namespace outrider::model::jinja
