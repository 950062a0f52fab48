#include "model/jinja/filters.hpp"
#include "model/jinja/methods.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

bool is_letter_or_digit(char32_t code) {
  return is_alpha(code) || is_digit(code);
}
bool is_decimal_digit(char32_t code) {
  return is_digit(code);
}

/// All characters, and at least one, are of the class.
template <bool (*holds)(char32_t)>
Value all_method(Interpreter& in, const Value& self, const Args& args) {
  bind(args, {}, "the method");
  const std::string& text = self.text();
  in.budget().charge(text.size());
  if (text.empty()) return Value(false);
  for (size_t at = 0; at < text.size();) {
    if (!holds(decode_at(text, at))) return Value(false);
  }
  return Value(true);
}

/// islower, isupper: the characters that have case all have this one, and there is one.
template <bool upper>
Value case_method(Interpreter& in, const Value& self, const Args& args) {
  bind(args, {}, "the method");
  const TestFunction test = find_test(upper ? "upper" : "lower");
  return Value(test(in, self, args));
}

constexpr MethodEntry k_methods[] = {
    {"isspace", all_method<is_space>},
    {"isalpha", all_method<is_alpha>},
    {"isdigit", all_method<is_decimal_digit>},
    {"isalnum", all_method<is_letter_or_digit>},
    {"isupper", case_method<true>},
    {"islower", case_method<false>},
};

}  // namespace

std::span<const MethodEntry> string_predicates() {
  return k_methods;
}

}  // namespace outrider::model::jinja
