#include "model/jinja/operators.hpp"

#include <cmath>

#include "base/limits.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

constexpr std::string_view k_symbols[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void fail_types(BinaryOp op, const Value& a, const Value& b) {
  fail_value("unsupported operand type(s) for " + std::string(k_symbols[static_cast<size_t>(op)]) +
             ": '" + std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

[[noreturn]] void fail_overflow() {
  fail_value("integer result does not fit 64 bits");
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail_value("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 1 || exponent == 0) return Value(int64_t{1});
  if (base == 0) return Value(int64_t{0});
  if (base == -1) return Value(int64_t{exponent % 2 == 0 ? 1 : -1});
  int64_t out = 1;
  for (int64_t i = 0; i < exponent; ++i) {  // overflows after 63 steps at most
    if (__builtin_mul_overflow(out, base, &out)) fail_overflow();
  }
  return Value(out);
}

/// Floor division and the remainder that goes with it; b is not 0.
Value integer_division(BinaryOp op, int64_t a, int64_t b) {
  if (b == -1) {
    if (op == BinaryOp::modulo) return Value(int64_t{0});
    if (a == INT64_MIN) fail_overflow();
    return Value(-a);
  }
  const int64_t remainder = a % b;
  const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == BinaryOp::modulo) return Value(adjust ? remainder + b : remainder);
  return Value(a / b - (adjust ? 1 : 0));
}

Value integer_binary(BinaryOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::add:
      overflow = __builtin_add_overflow(a, b, &out);
      break;
    case BinaryOp::subtract:
      overflow = __builtin_sub_overflow(a, b, &out);
      break;
    case BinaryOp::multiply:
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    case BinaryOp::divide:
      if (b == 0) fail_value("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::floor_divide:
    case BinaryOp::modulo:
      if (b == 0) fail_value("integer division or modulo by zero");
      return integer_division(op, a, b);
    case BinaryOp::power:
      return integer_power(a, b);
  }
  if (overflow) fail_overflow();
  return Value(out);
}

double float_modulo(double a, double b) {
  double out = std::fmod(a, b);
  if (out != 0) {
    if ((b < 0) != (out < 0)) out += b;
  } else {
    out = std::copysign(0.0, b);
  }
  return out;
}

/// Python's floor division of floats, which is not floor(a / b) when the quotient rounds.
double float_floor_divide(double a, double b) {
  const double quotient = (a - float_modulo(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value float_binary(BinaryOp op, double a, double b) {
  const bool divides = op >= BinaryOp::divide && op <= BinaryOp::modulo;
  if (divides && b == 0) fail_value("float division by zero");
  switch (op) {
    case BinaryOp::add:
      return Value(a + b);
    case BinaryOp::subtract:
      return Value(a - b);
    case BinaryOp::multiply:
      return Value(a * b);
    case BinaryOp::divide:
      return Value(a / b);
    case BinaryOp::floor_divide:
      return Value(float_floor_divide(a, b));
    case BinaryOp::modulo:
      return Value(float_modulo(a, b));
    case BinaryOp::power:
      break;
  }
  const double out = std::pow(a, b);
  if (a == 0 && b < 0) fail_value("0.0 cannot be raised to a negative power");
  if (std::isinf(out) && std::isfinite(a) && std::isfinite(b)) fail_value("Result too large");
  if (std::isnan(out) && !std::isnan(a) && !std::isnan(b)) fail_value("complex result");
  return Value(out);
}

Value add_text(Interpreter& in, const Value& a, const Value& b) {
  const bool safe = a.safe() || b.safe();
  const auto part = [&](const Value& v) {
    return safe && !v.safe() ? escape_html(v.text()) : v.text();
  };
  in.budget().charge(a.text().size() + b.text().size());
  return Value(part(a) + part(b), safe);
}

Value repeat(Interpreter& in, const Value& value, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  const auto pay = [&](size_t size) {
    uint64_t total = 0;
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(size), &total)) total = UINT64_MAX;
    in.budget().charge(total);
  };
  if (value.is_string()) {
    pay(value.text().size());
    std::string out;
    if (value.text().empty()) return Value(out);
    for (uint64_t i = 0; i < count; ++i) out += value.text();
    return Value(std::move(out), value.safe());
  }
  const List& list = value.list();
  pay(k_element_work * list.items.size());
  std::vector<Value> out;
  for (uint64_t i = 0; i < count && !list.items.empty(); ++i) {
    out.insert(out.end(), list.items.begin(), list.items.end());
  }
  return make_list(std::move(out), list.kind);
}

bool is_plain_list(const Value& value) {
  return value.is(Kind::list) && value.list().kind <= ListKind::tuple;
}

bool is_repeatable(const Value& value) {
  return value.is_string() || is_plain_list(value);
}

}  // namespace

Value apply_binary(Interpreter& in, BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (a.is_numeric() && b.is_numeric()) {
    if (a.is_integral() && b.is_integral()) return integer_binary(op, a.integral(), b.integral());
    return float_binary(op, a.number(), b.number());
  }
  if (op == BinaryOp::modulo && a.is_string()) {
    return in.text(percent_format(in, a.text(), b), a.safe());
  }
  if (b.is_undefined()) fail_undefined(b);
  if (op == BinaryOp::add && a.is_string() && b.is_string()) return add_text(in, a, b);
  if (op == BinaryOp::add && is_plain_list(a) && is_plain_list(b) &&
      a.list().kind == b.list().kind) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return in.list(std::move(items), a.list().kind);
  }
  if (op == BinaryOp::multiply && is_repeatable(a) && b.is_integral()) {
    return repeat(in, a, b.integral());
  }
  if (op == BinaryOp::multiply && is_repeatable(b) && a.is_integral()) {
    return repeat(in, b, a.integral());
  }
  fail_types(op, a, b);
}

Value apply_unary(UnaryOp op, const Value& operand) {
  if (op == UnaryOp::logical_not) return Value(!truthy(operand));
  if (operand.is_undefined()) fail_undefined(operand);
  if (!operand.is_numeric()) {
    fail_value("bad operand type for unary " + std::string(op == UnaryOp::negate ? "-" : "+") +
               ": '" + std::string(type_name(operand)) + "'");
  }
  if (operand.is(Kind::number)) {
    return Value(op == UnaryOp::negate ? -operand.number() : operand.number());
  }
  if (op == UnaryOp::plus) return Value(operand.integral());
  if (operand.integral() == INT64_MIN) fail_overflow();
  return Value(-operand.integral());
}

bool contains(Interpreter& in, const Value& container, const Value& item) {
  Budget& budget = in.budget();
  if (container.is_string()) {
    if (!item.is_string()) {
      fail_value("'in <string>' requires string as left operand, not " +
                 std::string(type_name(item)));
    }
    budget.charge(container.text().size());
    return find_text(container.text(), item.text()) != std::string::npos;
  }
  if (container.is(Kind::dict)) {
    check_hashable(budget, item);
    return container.dict().find(budget, item) != nullptr;
  }
  if (container.is(Kind::list) && container.list().kind != ListKind::generator) {
    if (container.list().kind == ListKind::keys) check_hashable(budget, item);
    for (const Value& other : container.list().items) {
      if (equal(budget, other, item)) return true;
    }
    return false;
  }
  for (const Value& other : in.elements(container)) {
    if (equal(budget, other, item)) return true;
  }
  return false;
}

bool apply_compare(Interpreter& in, CompareOp op, const Value& a, const Value& b) {
  Budget& budget = in.budget();
  switch (op) {
    case CompareOp::eq:
      return equal(budget, a, b);
    case CompareOp::ne:
      return !equal(budget, a, b);
    case CompareOp::lt:
      return less(budget, a, b);
    case CompareOp::gt:
      return less(budget, b, a);
    case CompareOp::le:
      // Not `!less(b, a)`: false for NaN.
      return less(budget, a, b) || equal(budget, a, b);
    case CompareOp::ge:
      return less(budget, b, a) || equal(budget, a, b);
    case CompareOp::in:
      return contains(in, b, a);
    case CompareOp::not_in:
      return !contains(in, b, a);
  }
  return false;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace outrider::model::jinja
