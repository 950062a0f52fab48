#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/methods.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

/// The text of the receiver, which a method may read from end to end.
const std::string& receiver(Interpreter& in, const Value& self) {
  in.budget().charge(self.text().size());
  return self.text();
}

template <std::string (*convert)(std::string_view)>
Value convert_method(Interpreter& in, const Value& self, const Args& args) {
  bind(args, {}, "the method");
  in.budget().charge(k_case_work * self.text().size());
  return in.text(convert(self.text()));
}

template <bool left, bool right>
Value strip_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"chars"}, "strip");
  const std::string& text = receiver(in, self);
  const StripSides sides{left, right};
  if (given[0] == nullptr || given[0]->is_none()) {
    return Value(std::string(strip_space(text, sides)));
  }
  const std::string& set = text_arg(given[0], "strip");
  uint64_t cost = 0;
  if (__builtin_mul_overflow(uint64_t{text.size()}, uint64_t{set.size() / 16}, &cost)) {
    cost = UINT64_MAX;
  }
  in.budget().charge(cost);
  return Value(std::string(strip_set(text, set, sides)));
}

template <bool from_right>
Value split_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"sep", "maxsplit"}, "split");
  const int64_t count = int_or(given[1], -1);
  const std::string& text = receiver(in, self);
  if (given[0] == nullptr || given[0]->is_none()) return split_space(in, text, count, from_right);
  return split_text(in, text, text_arg(given[0], "split"), count, from_right);
}

/// The part of the text that start and end (in code points) name; nothing if start is behind it.
struct Window {
  bool valid;
  std::string text;
  size_t first;
};
Window window(Interpreter& in, const Value& self, const Value* start, const Value* end) {
  const Value from = start != nullptr ? *start : Value::none();
  const Value to = end != nullptr ? *end : Value::none();
  const auto length = static_cast<int64_t>(count_code_points(receiver(in, self)));
  int64_t first = from.is_none() ? 0 : int_or(&from, 0);
  if (first < 0) first = std::max<int64_t>(first + length, 0);
  if (first > length) return {false, {}, 0};
  return {true, slice(in, self, Value(first), to, Value::none()).text(),
          static_cast<size_t>(first)};
}

bool matches_at_edge(const std::string& text, const std::string& part, bool at_start) {
  if (part.size() > text.size()) return false;
  return text.compare(at_start ? 0 : text.size() - part.size(), part.size(), part) == 0;
}

template <bool at_start>
Value edge_method(Interpreter& in, const Value& self, const Args& args) {
  constexpr std::string_view name = at_start ? "startswith" : "endswith";
  const auto given = bind(args, {"prefix", "start", "end"}, name, 1);
  const Window part = window(in, self, given[1], given[2]);
  if (!part.valid) return Value(false);
  if (given[0]->is(Kind::list) && given[0]->list().kind == ListKind::tuple) {
    const auto& options = given[0]->list().items;
    return Value(std::any_of(options.begin(), options.end(), [&](const Value& option) {
      in.budget().charge(k_element_work + part.text.size());
      return matches_at_edge(part.text, text_arg(&option, name), at_start);
    }));
  }
  return Value(matches_at_edge(part.text, text_arg(given[0], name), at_start));
}

enum class Missing : uint8_t { minus_one, fails };
template <bool from_right, Missing missing>
Value find_method_of(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"sub", "start", "end"}, "find", 1);
  const std::string& needle = text_arg(given[0], "find");
  const Window part = window(in, self, given[1], given[2]);
  size_t found = std::string::npos;
  if (part.valid && from_right) {
    found = find_last_text(part.text, needle);
  } else if (part.valid) {
    found = find_text(part.text, needle);
  }
  if (found != std::string::npos) {
    return Value(part.first + count_code_points(std::string_view(part.text).substr(0, found)));
  }
  if (missing == Missing::fails) fail_value("substring not found");
  return Value(int64_t{-1});
}

Value count_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"sub", "start", "end"}, "count", 1);
  const std::string& needle = text_arg(given[0], "count");
  const Window part = window(in, self, given[1], given[2]);
  if (!part.valid) return Value(int64_t{0});
  if (needle.empty()) return Value(count_code_points(part.text) + 1);
  size_t count = 0;
  for (size_t at = find_text(part.text, needle); at != std::string::npos;
       at = find_text(part.text, needle, at + needle.size())) {
    ++count;
  }
  return Value(count);
}

Value replace_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"old", "new", "count"}, "replace", 2);
  return Value(replace_text(in.budget(), receiver(in, self), text_arg(given[0], "replace"),
                            text_arg(given[1], "replace"), int_or(given[2], -1)));
}

Value join_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"iterable"}, "join", 1);
  std::string out;
  bool first = true;
  for (const Value& item : in.elements(*given[0])) {
    if (!item.is_string()) fail_value("sequence item: expected str instance");
    in.budget().charge(self.text().size() + item.text().size());
    if (!std::exchange(first, false)) out += self.text();
    out += item.text();
  }
  return Value(std::move(out));
}

Value splitlines_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"keepends"}, "splitlines");
  std::vector<Value> lines;
  for (std::string& line : split_lines(receiver(in, self), bool_or(given[0], false))) {
    lines.push_back(in.text(std::move(line)));
  }
  return in.list(std::move(lines));
}

template <bool prefix>
Value remove_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"affix"}, prefix ? "removeprefix" : "removesuffix", 1);
  const std::string& text = receiver(in, self);
  const std::string& part = text_arg(given[0], "removeprefix");
  if (!matches_at_edge(text, part, prefix)) return self;
  const size_t rest = text.size() - part.size();
  return Value(prefix ? text.substr(part.size()) : text.substr(0, rest));
}

template <bool from_right>
Value partition_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"sep"}, "partition", 1);
  const std::string& separator = text_arg(given[0], "partition");
  if (separator.empty()) fail_value("empty separator");
  const Value halves = split_text(in, receiver(in, self), separator, 1, from_right);
  const auto& parts = halves.list().items;
  if (parts.size() == 2) {
    return in.list({parts[0], *given[0], parts[1]}, ListKind::tuple);
  }
  if (from_right) return in.list({Value(""), Value(""), parts[0]}, ListKind::tuple);
  return in.list({parts[0], Value(""), Value("")}, ListKind::tuple);
}

enum class Align : uint8_t { left, right, zeros };
template <Align align>
Value pad_method(Interpreter& in, const Value& self, const Args& args) {
  const auto given = bind(args, {"width", "fillchar"}, "the method", 1);
  const std::string& text = receiver(in, self);
  const std::string fill = align == Align::zeros ? "0"
                           : given[1] != nullptr ? text_arg(given[1], "the method")
                                                 : " ";
  if (count_code_points(fill) != 1) fail_value("the fill character must be one character long");
  const auto length = static_cast<int64_t>(count_code_points(text));
  const int64_t width = int_or(given[0], 0);
  if (width <= length) return self;
  const int64_t missing = width - length;
  in.budget().charge(static_cast<uint64_t>(missing));
  std::string padding;
  for (int64_t i = 0; i < missing; ++i) padding += fill;
  if (align == Align::left) return Value(text + padding);
  const bool sign = align == Align::zeros && !text.empty() && (text[0] == '-' || text[0] == '+');
  return Value(sign ? text[0] + padding + text.substr(1) : padding + text);
}

constexpr MethodEntry k_string_methods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"startswith", edge_method<true>},
    {"endswith", edge_method<false>},
    {"replace", replace_method},
    {"upper", convert_method<to_upper>},
    {"lower", convert_method<to_lower>},
    {"title", convert_method<to_title>},
    {"capitalize", convert_method<capitalize>},
    {"find", find_method_of<false, Missing::minus_one>},
    {"rfind", find_method_of<true, Missing::minus_one>},
    {"index", find_method_of<false, Missing::fails>},
    {"rindex", find_method_of<true, Missing::fails>},
    {"count", count_method},
    {"join", join_method},
    {"splitlines", splitlines_method},
    {"removeprefix", remove_method<true>},
    {"removesuffix", remove_method<false>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"ljust", pad_method<Align::left>},
    {"rjust", pad_method<Align::right>},
    {"zfill", pad_method<Align::zeros>},
};

}  // namespace

std::span<const MethodEntry> string_methods() {
  return k_string_methods;
}

const std::string& text_arg(const Value* value, std::string_view function) {
  if (value == nullptr || !value->is_string()) {
    fail_value(std::string(function) + "() takes a string, not " +
               (value == nullptr ? "nothing" : std::string(type_name(*value))));
  }
  return value->text();
}

}  // namespace outrider::model::jinja
