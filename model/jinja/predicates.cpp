#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

/// `is` tests of templates.
namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

template <bool (*holds)(const Value&)>
bool plain(Interpreter&, const Value& value, const Args& args) {
  bind(args, {}, "the test");
  return holds(value);
}

template <CompareOp op>
bool compare(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"other"}, "the test", 1);
  return apply_compare(in, op, value, *given[0]);
}

bool is_true(const Value& v) {
  return v.is(Kind::boolean) && v.boolean();
}
bool is_false(const Value& v) {
  return v.is(Kind::boolean) && !v.boolean();
}
bool is_defined(const Value& v) {
  return !v.is_undefined();
}
bool is_undefined(const Value& v) {
  return v.is_undefined();
}
bool is_none(const Value& v) {
  return v.is_none();
}
bool is_boolean(const Value& v) {
  return v.is(Kind::boolean);
}
bool is_integer(const Value& v) {
  return v.is(Kind::integer);
}
bool is_float(const Value& v) {
  return v.is(Kind::number);
}
bool is_number(const Value& v) {
  return v.is_numeric();
}
bool is_string(const Value& v) {
  return v.is_string();
}
bool is_mapping(const Value& v) {
  return v.is(Kind::dict);
}
bool is_callable(const Value& v) {
  return v.is_undefined() || (v.is(Kind::object) && v.object()->callable());
}
bool is_escaped(const Value& v) {
  return v.is_string() && v.safe();
}
bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Kind::list) || v.is(Kind::dict);
}
bool is_sequence(const Value& v) {
  if (v.is(Kind::list)) return v.list().kind <= ListKind::range;
  return v.is_undefined() || v.is_string() || v.is(Kind::dict);
}

template <bool upper>
bool has_case(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "the test");
  const std::string text = to_text(in.budget(), value);
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = decode_at(text, at);
    if (!is_cased(code)) continue;
    std::string one;
    append_utf8(one, code);
    if ((upper ? to_upper(one) : to_lower(one)) != one) return false;
    if ((upper ? to_lower(one) : to_upper(one)) == one) return false;
    any = true;
  }
  return any;
}

int64_t remainder(Interpreter& in, const Value& value, const Value& divisor) {
  const Value out = apply_binary(in, BinaryOp::modulo, value, divisor);
  if (out.is(Kind::number)) return out.number() == 0 ? 0 : out.number() == 1 ? 1 : 2;
  if (!out.is_integral()) fail_value("the test takes a number");
  return out.integral();
}

bool is_odd(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "odd");
  return remainder(in, value, Value(int64_t{2})) == 1;
}

bool is_even(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "even");
  return remainder(in, value, Value(int64_t{2})) == 0;
}

bool divisible_by(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"num"}, "divisibleby", 1);
  return remainder(in, value, *given[0]) == 0;
}

bool same_as(Interpreter&, const Value& value, const Args& args) {
  const auto given = bind(args, {"other"}, "sameas", 1);
  if (value.is_string() && given[0]->is_string()) return value.text() == given[0]->text();
  return value.shares_with(*given[0]);
}

bool is_in(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"seq"}, "in", 1);
  return contains(in, *given[0], value);
}

bool is_filter(Interpreter&, const Value& value, const Args& args) {
  bind(args, {}, "filter");
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool is_test(Interpreter&, const Value& value, const Args& args) {
  bind(args, {}, "test");
  return value.is_string() && find_test(value.text()) != nullptr;
}

struct TestEntry {
  std::string_view name;
  TestFunction function;
};

constexpr TestEntry k_tests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"boolean", plain<is_boolean>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_string>},
    {"mapping", plain<is_mapping>},
    {"iterable", plain<is_iterable>},
    {"sequence", plain<is_sequence>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"upper", has_case<true>},
    {"lower", has_case<false>},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", divisible_by},
    {"sameas", same_as},
    {"in", is_in},
    {"filter", is_filter},
    {"test", is_test},
    {"==", compare<CompareOp::eq>},
    {"eq", compare<CompareOp::eq>},
    {"equalto", compare<CompareOp::eq>},
    {"!=", compare<CompareOp::ne>},
    {"ne", compare<CompareOp::ne>},
    {">", compare<CompareOp::gt>},
    {"gt", compare<CompareOp::gt>},
    {"greaterthan", compare<CompareOp::gt>},
    {">=", compare<CompareOp::ge>},
    {"ge", compare<CompareOp::ge>},
    {"<", compare<CompareOp::lt>},
    {"lt", compare<CompareOp::lt>},
    {"lessthan", compare<CompareOp::lt>},
    {"<=", compare<CompareOp::le>},
    {"le", compare<CompareOp::le>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  for (const TestEntry& entry : k_tests) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace outrider::model::jinja
