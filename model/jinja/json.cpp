#include <algorithm>
#include <cmath>

#include "model/jinja/print.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

class JsonPrinter {
 public:
  JsonPrinter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  void print(const Value& value) {
    switch (value.kind()) {
      case Kind::string:
        string(value.text());
        return;
      case Kind::list:
        if (value.list().kind > ListKind::tuple) fail_type(value);
        list(value.list());
        return;
      case Kind::dict:
        dict(value.dict());
        return;
      case Kind::undefined:
      case Kind::object:
        fail_type(value);
      default:
        put(scalar(value));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  [[noreturn]] static void fail_type(const Value& value) {
    fail_value("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(Kind::boolean)) return value.boolean() ? "true" : "false";
    if (value.is(Kind::integer)) return std::to_string(value.integral());
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  void put(std::string_view text) {
    budget_.charge(text.size());
    out_ += text;
  }

  void line_break() {
    if (!style_.indent) return;
    put("\n");
    for (size_t i = 0; i < level_; ++i) put(*style_.indent);
  }

  void separator(bool& first) {
    if (!std::exchange(first, false)) put(style_.item_separator);
    line_break();
  }

  void list(const List& list) {
    if (list.items.empty()) {
      put("[]");
      return;
    }
    const Nesting nesting(budget_);
    put("[");
    ++level_;
    bool first = true;
    for (const Value& item : list.items) {
      separator(first);
      print(item);
    }
    --level_;
    line_break();
    put("]");
  }

  void dict(const Dict& dict) {
    if (dict.items.empty()) {
      put("{}");
      return;
    }
    const Nesting nesting(budget_);
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        return less(budget_, a->first, b->first);
      });
    }
    put("{");
    ++level_;
    bool first = true;
    for (const auto* item : items) {
      separator(first);
      key(item->first);
      put(style_.key_separator);
      print(item->second);
    }
    --level_;
    line_break();
    put("}");
  }

  void key(const Value& key) {
    if (key.is_string()) {
      string(key.text());
    } else if (key.is_numeric() || key.is_none()) {
      string(scalar(key));
    } else {
      fail_value("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    }
  }

  void string(std::string_view text) {
    budget_.charge(k_case_work * text.size() / 2 + 2);
    out_ += '"';
    for (size_t at = 0; at < text.size();) character(decode_at(text, at));
    out_ += '"';
  }

  void character(char32_t code) {
    constexpr std::string_view escaped = "\"\\\n\r\t\f\b";
    constexpr std::string_view letters = "\"\\nrtfb";
    const size_t known =
        code < 0x80 ? escaped.find(static_cast<char>(code)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out_ += '\\';
      out_ += letters[known];
    } else if (code < 0x20 || (style_.ascii && code > 0x7E)) {
      if (code >= 0x10000) {
        unit(0xD800 + ((code - 0x10000) >> 10));
        unit(0xDC00 + ((code - 0x10000) & 0x3FF));
      } else {
        unit(code);
      }
    } else {
      append_utf8(out_, code);
    }
  }

  void unit(char32_t code) {
    constexpr std::string_view hex = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += hex[(code >> shift) & 0xF];
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
  size_t level_ = 0;
};

}  // namespace

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(budget, style);
  printer.print(value);
  return printer.take();
}

}  // namespace outrider::model::jinja
