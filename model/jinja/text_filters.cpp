#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/methods.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

/// Filters take any value as its text.
std::string soft_text(Interpreter& in, const Value& value) {
  return to_text(in.budget(), value);
}

template <std::string (*convert)(std::string_view)>
Value convert_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "the filter");
  const std::string text = soft_text(in, value);
  in.budget().charge(k_case_work * text.size());
  return in.text(convert(text));
}

bool is_word_break(char32_t code) {
  return is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
}

/// Jinja's own title: a word begins behind white space, '-' or an opening bracket.
Value title_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "title");
  const std::string text = soft_text(in, value);
  in.budget().charge(2 * k_case_work * text.size());
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    size_t end = at;
    const bool breaks = is_word_break(decode_at(text, end));
    while (end < text.size()) {
      size_t next = end;
      if (is_word_break(decode_at(text, next)) != breaks) break;
      end = next;
    }
    size_t head = begin;
    decode_at(text, head);
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    out += to_upper(word.substr(0, head - begin));
    out += to_lower(word.substr(head - begin));
    at = end;
  }
  return in.text(std::move(out));
}

Value trim_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"chars"}, "trim");
  const std::string text = soft_text(in, value);
  if (given[0] == nullptr || given[0]->is_none())
    return in.text(std::string(strip_space(text, {})));
  const std::string& set = text_arg(given[0], "trim");
  in.budget().charge((text.size() / 16 + 1) * set.size());
  return in.text(std::string(strip_set(text, set, {})));
}

Value replace_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"old", "new", "count"}, "replace", 2);
  const bool all = given[2] == nullptr || given[2]->is_none();
  return Value(replace_text(in.budget(), soft_text(in, value), soft_text(in, *given[0]),
                            soft_text(in, *given[1]), all ? -1 : int_or(given[2], -1)));
}

Value escape_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "escape");
  if (value.is_string() && value.safe()) return value;
  return in.text(escape_html(soft_text(in, value)), true);
}

Value force_escape_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "forceescape");
  return in.text(escape_html(soft_text(in, value)), true);
}

Value safe_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "safe");
  return in.text(soft_text(in, value), true);
}

Value string_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "string");
  return value.is_string() ? value : in.text(soft_text(in, value));
}

/// Indents each line but, unless asked for, the first and the blank ones.
Value indent_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"width", "first", "blank"}, "indent");
  std::string indent;
  if (given[0] != nullptr && given[0]->is_string()) {
    indent = given[0]->text();
  } else {
    const int64_t width = std::max<int64_t>(int_or(given[0], 4), 0);
    in.budget().charge(static_cast<uint64_t>(width));
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const bool first = bool_or(given[1], false);
  const bool blank = bool_or(given[2], false);
  std::string out;
  bool is_first = true;
  for (const std::string& line : split_lines(text_arg(&value, "indent") + "\n", false)) {
    const bool indented = is_first ? first : blank || !line.empty();
    in.budget().charge(indent.size() + line.size() + 1);
    if (!std::exchange(is_first, false)) out += '\n';
    if (indented) out += indent;
    out += line;
  }
  return Value(std::move(out), value.safe());
}

Value center_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"width"}, "center");
  const std::string text = soft_text(in, value);
  const auto length = static_cast<int64_t>(count_code_points(text));
  const int64_t width = int_or(given[0], 80);
  if (width <= length) return in.text(text);
  const auto missing = static_cast<size_t>(width - length);
  in.budget().charge(missing);
  // Python's choice of the side that gets the odd space.
  const size_t left = missing / 2 + (missing & static_cast<size_t>(width) & 1);
  return in.text(std::string(left, ' ') + text + std::string(missing - left, ' '));
}

Value tojson_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"ensure_ascii", "indent", "separators", "sort_keys"}, "tojson");
  JsonStyle style;
  style.ascii = bool_or(given[0], false);
  style.sort_keys = bool_or(given[3], false);
  if (given[1] != nullptr && given[1]->is_string()) {
    style.indent = given[1]->text();
  } else if (given[1] != nullptr && !given[1]->is_none()) {
    const int64_t width = std::max<int64_t>(int_or(given[1], 0), 0);
    in.budget().charge(static_cast<uint64_t>(width));
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (given[2] != nullptr && !given[2]->is_none()) {
    const std::vector<Value> parts = in.elements(*given[2]);
    if (parts.size() != 2) fail_value("separators are a pair");
    style.item_separator = text_arg(&parts[0], "tojson");
    style.key_separator = text_arg(&parts[1], "tojson");
  }
  return Value(to_json(in.budget(), value, style));
}

Value format_filter(Interpreter& in, const Value& value, const Args& args) {
  if (!args.positional.empty() && !args.keywords.empty()) {
    fail_value("can't handle positional and keyword arguments at the same time");
  }
  Value given = in.list(args.positional, ListKind::tuple);
  if (!args.keywords.empty()) {
    Dict dict;
    for (const auto& [name, item] : args.keywords) dict.set(in.budget(), Value(name), item);
    given = make_dict(std::move(dict));
  }
  return in.text(percent_format(in, soft_text(in, value), given));
}

Value wordcount_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "wordcount");
  const std::string text = soft_text(in, value);
  size_t count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = decode_at(text, at);
    const bool letter = is_alpha(code) || is_digit(code) || code == '_';
    count += letter && !in_word;
    in_word = letter;
  }
  return Value(count);
}

constexpr FilterEntry k_text_filters[] = {
    {"upper", convert_filter<to_upper>},
    {"lower", convert_filter<to_lower>},
    {"capitalize", convert_filter<capitalize>},
    {"title", title_filter},
    {"trim", trim_filter},
    {"replace", replace_filter},
    {"escape", escape_filter},
    {"e", escape_filter},
    {"forceescape", force_escape_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"indent", indent_filter},
    {"center", center_filter},
    {"tojson", tojson_filter},
    {"format", format_filter},
    {"wordcount", wordcount_filter},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return k_text_filters;
}

}  // namespace outrider::model::jinja
