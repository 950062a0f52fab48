#include <charconv>
#include <cmath>

#include "model/jinja/filters.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/numbers.hpp"
#include "model/jinja/print.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

Value to_integer(double number) {
  if (!(std::fabs(number) < 9223372036854775808.0)) {
    fail_value("integer result does not fit 64 bits");
  }
  return Value(static_cast<int64_t>(number));
}

Value int_filter(Interpreter&, const Value& value, const Args& args) {
  const auto given = bind(args, {"default", "base"}, "int");
  const Value fallback = given[0] != nullptr ? *given[0] : Value(int64_t{0});
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_integral()) return Value(value.integral());
  if (value.is_string()) {
    if (const auto integer = parse_integer(value.text(), int_or(given[1], 10))) {
      return Value(*integer);
    }
  }
  const auto number = value.is_string()        ? parse_float(value.text())
                      : value.is(Kind::number) ? std::optional(value.number())
                                               : std::nullopt;
  if (!number || std::isnan(*number) || std::isinf(*number)) return fallback;
  return to_integer(*number);
}

Value float_filter(Interpreter&, const Value& value, const Args& args) {
  const auto given = bind(args, {"default"}, "float");
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_numeric()) return Value(value.number());
  if (value.is_string()) {
    if (const auto number = parse_float(value.text())) return Value(*number);
  }
  return given[0] != nullptr ? *given[0] : Value(0.0);
}

Value abs_filter(Interpreter&, const Value& value, const Args& args) {
  bind(args, {}, "abs");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_numeric()) fail_value("bad operand type for abs()");
  if (value.is(Kind::number)) return Value(std::fabs(value.number()));
  if (value.integral() == INT64_MIN) fail_value("integer result does not fit 64 bits");
  return Value(std::abs(value.integral()));
}

/// round(x, digits): the decimal that is nearest to the exact value, ties to even.
double round_common(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 22) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits <= 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / scale) * scale;
  }
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed,
                                 static_cast<int>(digits));
  double out = value;
  std::from_chars(buffer, end.ptr, out);
  return out;
}

Value round_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"precision", "method"}, "round");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_numeric()) fail_value("round takes a number");
  const int64_t digits = int_or(given[0], 0);
  const std::string method = given[1] != nullptr ? to_text(in.budget(), *given[1]) : "common";
  if (method == "common") {
    if (value.is_integral() && digits >= 0) return Value(value.integral());
    const double rounded = round_common(value.number(), digits);
    return value.is_integral() ? to_integer(rounded) : Value(rounded);
  }
  if (method != "ceil" && method != "floor") fail_value("method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = value.number() * scale;
  if (!std::isfinite(scaled)) fail_value("the number is out of range");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr FilterEntry k_number_filters[] = {
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
};

}  // namespace

std::span<const FilterEntry> number_filters() {
  return k_number_filters;
}

}  // namespace outrider::model::jinja
