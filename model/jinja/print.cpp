#include "model/jinja/print.hpp"

#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

/// Text under construction, paid for byte by byte: values may share parts, so that their print
/// can be far larger than they are.
class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void repr(const Value& value) {
    if (value.is(Kind::list)) {
      list(value.list());
    } else if (value.is(Kind::dict)) {
      const Nesting nesting(budget_);
      put("{");
      bool first = true;
      for (const auto& [key, item] : value.dict().items) {
        if (!std::exchange(first, false)) put(", ");
        repr(key);
        put(": ");
        repr(item);
      }
      put("}");
    } else if (value.is_string()) {
      budget_.charge(k_case_work * value.text().size());
      put(value.safe() ? "Markup(" + quoted_text(value.text()) + ")" : quoted_text(value.text()));
    } else if (value.is_undefined()) {
      put("Undefined");
    } else {
      put(to_text(budget_, value));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    budget_.charge(text.size());
    out_ += text;
  }

  void list(const List& list) {
    const Nesting nesting(budget_);
    if (list.kind == ListKind::generator) {
      put("<generator object>");
      return;
    }
    if (list.kind == ListKind::range) {
      range(list);
      return;
    }
    constexpr std::string_view opening[] = {"[",           "(", "", "dict_keys([", "dict_values([",
                                            "dict_items(["};
    constexpr std::string_view closing[] = {"]", ")", "", "])", "])", "])"};
    put(opening[static_cast<size_t>(list.kind)]);
    bool first = true;
    for (const Value& item : list.items) {
      if (!std::exchange(first, false)) put(", ");
      repr(item);
    }
    if (list.kind == ListKind::tuple && list.items.size() == 1) put(",");
    put(closing[static_cast<size_t>(list.kind)]);
  }

  void range(const List& list) {
    if (list.items.empty()) {
      put("range(0, 0)");
      return;
    }
    const int64_t first = list.items.front().integral();
    const int64_t last = list.items.back().integral();
    // Unsigned: distances may pass 2^63.
    const auto second = static_cast<uint64_t>(list.items.size() > 1 ? list.items[1].integral() : 0);
    const auto step = list.items.size() > 1
                          ? static_cast<int64_t>(second - static_cast<uint64_t>(first))
                          : int64_t{1};
    const auto stop = static_cast<int64_t>(static_cast<uint64_t>(last) + (step > 0 ? 1 : ~0ULL));
    put("range(" + std::to_string(first) + ", " + std::to_string(stop));
    put(step == 1 ? ")" : ", " + std::to_string(step) + ")");
  }

  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_repr(Budget& budget, const Value& value) {
  Printer printer(budget);
  printer.repr(value);
  return printer.take();
}

std::string to_text(Budget& budget, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.boolean() ? "True" : "False";
    case Kind::integer:
      return std::to_string(value.integral());
    case Kind::number:
      return float_text(value.number());
    case Kind::string:
      budget.charge(value.text().size());
      return value.text();
    case Kind::object:
      return value.object()->describe();
    default:
      return to_repr(budget, value);
  }
}

}  // namespace outrider::model::jinja
