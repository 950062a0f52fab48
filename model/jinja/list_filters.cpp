#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/interpreter.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/print.hpp"
#include "model/jinja/select.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

Value length_filter(Interpreter&, const Value& value, const Args& args) {
  bind(args, {}, "length");
  if (value.is_undefined()) return Value(int64_t{0});
  if (value.is_string()) return Value(count_code_points(value.text()));
  if (value.is(Kind::dict)) return Value(value.dict().items.size());
  if (value.is(Kind::list) && value.list().kind != ListKind::generator) {
    return Value(value.list().items.size());
  }
  fail_value("object of type '" + std::string(type_name(value)) + "' has no len()");
}

Value first_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "first");
  const Value none = Value::undefined("No first item, sequence was empty.");
  if (value.is(Kind::list) && value.list().kind == ListKind::generator) {
    const List& list = value.list();
    return list.consumed < list.items.size() ? list.items[list.consumed++] : none;
  }
  const std::vector<Value> items = in.elements(value);
  return items.empty() ? none : items.front();
}

Value last_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "last");
  if (value.is(Kind::list) && value.list().kind == ListKind::generator) {
    fail_value("'generator' object is not reversible");
  }
  const std::vector<Value> items = in.elements(value);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "list");
  return make_list(in.elements(value));
}

Value reverse_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "reverse");
  if (value.is_string()) {
    return slice(in, value, Value::none(), Value::none(), Value(int64_t{-1}));
  }
  const bool generator = value.is(Kind::list) && value.list().kind == ListKind::generator;
  std::vector<Value> items = in.elements(value);
  std::reverse(items.begin(), items.end());
  return make_list(std::move(items), generator ? ListKind::list : ListKind::generator);
}

Value join_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"d", "attribute"}, "join");
  const std::string separator = given[0] != nullptr ? to_text(in.budget(), *given[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : in.elements(value)) {
    in.budget().charge(separator.size());
    if (!std::exchange(first, false)) out += separator;
    out += to_text(in.budget(),
                   given[1] != nullptr ? get_path(in, item, attribute_path(*given[1])) : item);
  }
  return Value(std::move(out));
}

Value items_filter(Interpreter& in, const Value& value, const Args& args) {
  bind(args, {}, "items");
  std::vector<Value> pairs;
  if (!value.is_undefined()) {
    if (!value.is(Kind::dict)) fail_value("Can only get item pairs from a mapping.");
    for (const auto& [key, item] : value.dict().items) {
      pairs.push_back(in.list({key, item}, ListKind::tuple));
    }
  }
  return in.list(std::move(pairs), ListKind::generator);
}

/// Text without case, unless case counts; other values as they are.
Value sort_key(Interpreter& in, const Value& value, bool case_sensitive) {
  if (!value.is_string() || case_sensitive) return value;
  in.budget().charge(k_case_work * value.text().size());
  return in.text(to_lower(value.text()));
}

/// Items in the stable order of their keys; reverse keeps equal ones in place, as Python does.
std::vector<Value> sorted(Interpreter& in, std::vector<Value> items,
                          const std::vector<std::vector<Value>>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [&](size_t a, size_t b) {
    for (size_t k = 0; k < keys[a].size(); ++k) {
      const Value& left = reverse ? keys[b][k] : keys[a][k];
      const Value& right = reverse ? keys[a][k] : keys[b][k];
      if (!equal(in.budget(), left, right)) return less(in.budget(), left, right);
    }
    return false;
  };
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(std::move(items[i]));
  return out;
}

/// The keys of an item: one for each attribute in "a,b.c", or the item itself.
std::vector<Value> sort_keys(Interpreter& in, const Value& item, const Value* attribute,
                             bool case_sensitive) {
  if (attribute == nullptr || attribute->is_none()) return {sort_key(in, item, case_sensitive)};
  std::vector<Value> keys;
  if (!attribute->is_string()) {
    return {sort_key(in, get_path(in, item, attribute_path(*attribute)), case_sensitive)};
  }
  const std::string& names = attribute->text();
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const Value path(names.substr(begin, end - begin));
    keys.push_back(sort_key(in, get_path(in, item, attribute_path(path)), case_sensitive));
    begin = end + 1;
  }
  return keys;
}

Value sort_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"reverse", "case_sensitive", "attribute"}, "sort");
  std::vector<Value> items = in.elements(value);
  std::vector<std::vector<Value>> keys;
  for (const Value& item : items) {
    keys.push_back(sort_keys(in, item, given[2], bool_or(given[1], false)));
  }
  return in.list(sorted(in, std::move(items), keys, bool_or(given[0], false)));
}

Value dictsort_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"case_sensitive", "by", "reverse"}, "dictsort");
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is(Kind::dict)) fail_value("dictsort takes a mapping");
  const std::string by = given[1] != nullptr ? to_text(in.budget(), *given[1]) : "key";
  if (by != "key" && by != "value") fail_value("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> pairs;
  std::vector<std::vector<Value>> keys;
  for (const auto& [key, item] : value.dict().items) {
    pairs.push_back(in.list({key, item}, ListKind::tuple));
    keys.push_back({sort_key(in, by == "key" ? key : item, bool_or(given[0], false))});
  }
  return in.list(sorted(in, std::move(pairs), keys, bool_or(given[2], false)));
}

Value unique_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"case_sensitive", "attribute"}, "unique");
  Dict seen;
  std::vector<Value> out;
  for (Value& item : in.elements(value)) {
    const Value field = given[1] != nullptr && !given[1]->is_none()
                            ? get_path(in, item, attribute_path(*given[1]))
                            : item;
    const Value key = sort_key(in, field, bool_or(given[0], false));
    if (seen.find(in.budget(), key) != nullptr) continue;
    seen.set(in.budget(), key, Value::none());
    out.push_back(std::move(item));
  }
  return in.list(std::move(out), ListKind::generator);
}

template <bool largest>
Value extreme_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"case_sensitive", "attribute"}, largest ? "max" : "min");
  const bool case_sensitive = bool_or(given[0], false);
  const auto key_of = [&](const Value& item) {
    const bool plain = given[1] == nullptr || given[1]->is_none();
    return sort_key(in, plain ? item : get_path(in, item, attribute_path(*given[1])),
                    case_sensitive);
  };
  const std::vector<Value> items = in.elements(value);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = key_of(items[0]);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    const bool better =
        largest ? less(in.budget(), best_key, key) : less(in.budget(), key, best_key);
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Value sum_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"attribute", "start"}, "sum");
  Value total = given[1] != nullptr ? *given[1] : Value(int64_t{0});
  const bool plain = given[0] == nullptr || given[0]->is_none();
  for (const Value& item : in.elements(value)) {
    total = apply_binary(in, BinaryOp::add, total,
                         plain ? item : get_path(in, item, attribute_path(*given[0])));
  }
  return total;
}

Value batch_filter(Interpreter& in, const Value& value, const Args& args) {
  const auto given = bind(args, {"linecount", "fill_with"}, "batch", 1);
  const int64_t size = std::max<int64_t>(int_or(given[0], 0), -1);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (Value& item : in.elements(value)) {
    if (static_cast<int64_t>(row.size()) == size) {
      rows.push_back(in.list(std::exchange(row, {})));
    }
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    const int64_t missing = size - static_cast<int64_t>(row.size());
    if (given[1] != nullptr && !given[1]->is_none() && missing > 0) {
      in.budget().charge(k_element_work *
                         static_cast<uint64_t>(std::min<int64_t>(missing, INT32_MAX)));
      row.insert(row.end(), static_cast<size_t>(missing), *given[1]);
    }
    rows.push_back(in.list(std::move(row)));
  }
  return in.list(std::move(rows), ListKind::generator);
}

constexpr FilterEntry k_list_filters[] = {
    {"length", length_filter},     {"count", length_filter},  {"first", first_filter},
    {"last", last_filter},         {"list", list_filter},     {"reverse", reverse_filter},
    {"join", join_filter},         {"items", items_filter},   {"sort", sort_filter},
    {"dictsort", dictsort_filter}, {"unique", unique_filter}, {"min", extreme_filter<false>},
    {"max", extreme_filter<true>}, {"sum", sum_filter},       {"batch", batch_filter},
};

}  // namespace

std::span<const FilterEntry> list_filters() {
  return k_list_filters;
}

}  // namespace outrider::model::jinja
