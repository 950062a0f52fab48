#include "model/jinja/value.hpp"

#include <algorithm>

#include "base/limits.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

/// Dicts up to this size are searched key by key.
constexpr size_t k_indexed_keys_min = 9;

uint32_t depth_of(const Value& value) {
  if (value.is(Kind::list)) return value.list().depth;
  if (value.is(Kind::dict)) return value.dict().depth;
  if (value.is(Kind::object)) return value.object()->depth();
  return 0;
}

void check_depth(uint32_t depth) {
  if (depth > limits::template_value_depth_max) {
    throw TemplateError(ErrorCode::too_large, "a value nests too deeply");
  }
}

uint32_t depth_around(const std::vector<Value>& items) {
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  check_depth(depth + 1);
  return depth + 1;
}

bool equal_lists(Budget& budget, const List& a, const List& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  const Nesting nesting(budget);
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const Value& x, const Value& y) { return equal(budget, x, y); });
}

bool equal_dicts(Budget& budget, const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  const Nesting nesting(budget);
  for (const auto& [key, value] : a.items) {
    const Value* other = b.find(budget, key);
    if (other == nullptr || !equal(budget, value, *other)) return false;
  }
  return true;
}

bool less_lists(Budget& budget, const List& a, const List& b) {
  const Nesting nesting(budget);
  const size_t common = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < common; ++i) {
    if (!equal(budget, a.items[i], b.items[i])) return less(budget, a.items[i], b.items[i]);
  }
  return a.items.size() < b.items.size();
}

}  // namespace

// Out of line: g++ 12 warns about the variant's members where it inlines these.
Value::Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

Value Value::undefined(std::string_view what) {
  Value value;
  std::get<Undefined>(value.state_).what = std::make_shared<const std::string>(what);
  return value;
}

Value Value::none() {
  Value value;
  value.state_.emplace<None>();
  return value;
}

Value::Value(int64_t integer) : state_(integer) {}
Value::Value(std::string text, bool safe)
    : state_(std::make_shared<const Text>(Text{std::move(text), safe})) {}
Value::Value(std::shared_ptr<const List> list) : state_(std::move(list)) {}
Value::Value(std::shared_ptr<const Dict> dict) : state_(std::move(dict)) {}
Value::Value(std::shared_ptr<Object> object) : state_(std::move(object)) {}

bool Value::shares_with(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::undefined:
      return false;
    case Kind::none:
      return true;
    case Kind::boolean:
      return boolean() == other.boolean();
    case Kind::integer:
      return integral() == other.integral();
    case Kind::number:
      return number() == other.number();
    case Kind::string:
      return std::get<TextPtr>(state_) == std::get<TextPtr>(other.state_);
    case Kind::list:
      return std::get<ListPtr>(state_) == std::get<ListPtr>(other.state_);
    case Kind::dict:
      return std::get<DictPtr>(state_) == std::get<DictPtr>(other.state_);
    case Kind::object:
      return object() == other.object();
  }
  return false;
}

const Value* Dict::find(std::string_view key) const {
  if (!text_index_.empty()) {
    const auto found = text_index_.find(key);
    return found == text_index_.end() ? nullptr : &items[found->second].second;
  }
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

std::optional<size_t> Dict::position(Budget& budget, const Value& key) const {
  if (key.is_string() && !text_index_.empty()) {
    const auto found = text_index_.find(key.text());
    if (found == text_index_.end()) return std::nullopt;
    return found->second;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(budget, items[i].first, key)) return i;
  }
  return std::nullopt;
}

const Value* Dict::find(Budget& budget, const Value& key) const {
  const auto at = position(budget, key);
  return at ? &items[*at].second : nullptr;
}

void check_hashable(Budget& budget, const Value& key) {
  budget.charge(k_element_work);
  const bool is_list = key.is(Kind::list) && key.list().kind == ListKind::list;
  if (is_list || key.is(Kind::dict)) {
    fail_value("unhashable type: '" + std::string(type_name(key)) + "'");
  }
  if (!key.is(Kind::list) || key.list().kind != ListKind::tuple) return;
  for (const Value& item : key.list().items) check_hashable(budget, item);
}

void Dict::set(Budget& budget, Value key, Value value) {
  check_hashable(budget, key);
  depth = std::max({depth, depth_of(key) + 1, depth_of(value) + 1});
  check_depth(depth);
  if (const auto at = position(budget, key)) {
    items[*at].second = std::move(value);
    return;
  }
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() < k_indexed_keys_min) return;
  const size_t first = text_index_.empty() ? 0 : items.size() - 1;
  for (size_t i = first; i < items.size(); ++i) {
    if (items[i].first.is_string()) text_index_.emplace(items[i].first.text(), i);
  }
}

Object::Object(const std::vector<Value>& held) : depth_(depth_around(held)) {}

Value make_list(std::vector<Value> items, ListKind kind) {
  const uint32_t depth = depth_around(items);
  return Value(std::make_shared<const List>(List{std::move(items), kind, depth}));
}

Value make_dict(Dict dict) {
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integral() != 0;
    case Kind::number:
      return value.number() != 0;
    case Kind::string:
      return !value.text().empty();
    case Kind::list:
      return value.list().kind == ListKind::generator || !value.list().items.empty();
    case Kind::dict:
      return !value.dict().items.empty();
    case Kind::object:
      return true;
  }
  return false;
}

bool equal(Budget& budget, const Value& a, const Value& b) {
  budget.charge(k_element_work);
  if (a.is_numeric() && b.is_numeric()) {
    if (a.is_integral() && b.is_integral()) return a.integral() == b.integral();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string:
      if (a.text().size() != b.text().size()) return false;
      budget.charge(a.text().size());
      return a.text() == b.text();
    case Kind::list:
      return a.shares_with(b) || equal_lists(budget, a.list(), b.list());
    case Kind::dict:
      return a.shares_with(b) || equal_dicts(budget, a.dict(), b.dict());
    case Kind::object:
      return a.shares_with(b);
    default:
      return true;  // undefined, none
  }
}

bool less(Budget& budget, const Value& a, const Value& b) {
  budget.charge(k_element_work);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_numeric() && b.is_numeric()) {
    if (a.is_integral() && b.is_integral()) return a.integral() < b.integral();
    return a.number() < b.number();
  }
  if (a.is_string() && b.is_string()) {
    budget.charge(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // the order of UTF-8 bytes is the order of code points
  }
  if (a.is(Kind::list) && b.is(Kind::list) && a.list().kind == b.list().kind &&
      a.list().kind <= ListKind::tuple) {
    return less_lists(budget, a.list(), b.list());
  }
  fail_value("'<' not supported between instances of '" + std::string(type_name(a)) + "' and '" +
             std::string(type_name(b)) + "'");
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::number:
      return "float";
    case Kind::string:
      return "str";
    case Kind::list: {
      constexpr std::string_view names[] = {"list",        "tuple",      "range",    "dict_keys",
                                            "dict_values", "dict_items", "generator"};
      return names[static_cast<size_t>(value.list().kind)];
    }
    case Kind::dict:
      return "dict";
    case Kind::object:
      return "object";
  }
  return "object";
}

void fail_undefined(const Value& value) {
  const std::string_view name = value.undefined_name();
  if (name.empty()) fail_value("a value is undefined");
  if (name.find(' ') != std::string_view::npos) fail_value(std::string(name));
  fail_value("'" + std::string(name) + "' is undefined");
}

}  // namespace outrider::model::jinja
