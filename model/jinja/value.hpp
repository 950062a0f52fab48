#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/error.hpp"

namespace outrider::model::jinja {

class Interpreter;
class Object;
struct Dict;
struct List;

/// `safe` is MarkupSafe's mark: `e` leaves such text alone, `+` escapes what is joined to it.
struct Text {
  std::string text;
  bool safe = false;
};

/// A value of the template language: Python's, as far as templates see them. Copies are cheap and
/// share; lists, dicts and text never change once made (the sandbox forbids it), objects may.
class Value {
 public:
  enum class Kind : uint8_t {
    undefined,
    none,
    boolean,
    integer,
    number,
    string,
    list,
    dict,
    object,
  };

  Value();  ///< undefined, without a name
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
  static Value undefined(std::string_view what);
  static Value none();
  explicit Value(std::same_as<bool> auto flag) { state_ = flag; }
  explicit Value(std::same_as<double> auto number) { state_ = number; }
  explicit Value(int64_t integer);
  explicit Value(size_t count) : Value(static_cast<int64_t>(count)) {}
  explicit Value(std::string text, bool safe = false);
  explicit Value(std::string_view text) : Value(std::string(text)) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(std::shared_ptr<const List> list);
  explicit Value(std::shared_ptr<const Dict> dict);
  explicit Value(std::shared_ptr<Object> object);

  Kind kind() const { return static_cast<Kind>(state_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_string() const { return is(Kind::string); }
  /// int, float or bool, as Python counts them.
  bool is_numeric() const { return is(Kind::boolean) || is(Kind::integer) || is(Kind::number); }
  /// int or bool.
  bool is_integral() const { return is(Kind::boolean) || is(Kind::integer); }

  // The caller has looked at kind().
  bool boolean() const { return std::get<bool>(state_); }
  int64_t integral() const { return is(Kind::boolean) ? boolean() : std::get<int64_t>(state_); }
  double number() const {
    return is(Kind::number) ? std::get<double>(state_) : static_cast<double>(integral());
  }
  const std::string& text() const { return std::get<TextPtr>(state_)->text; }
  bool safe() const { return std::get<TextPtr>(state_)->safe; }
  const List& list() const { return *std::get<ListPtr>(state_); }
  const Dict& dict() const { return *std::get<DictPtr>(state_); }
  const std::shared_ptr<Object>& object() const { return std::get<ObjectPtr>(state_); }
  /// What the undefined value was to be, for messages; may be empty.
  std::string_view undefined_name() const {
    const auto& what = std::get<Undefined>(state_).what;
    return what ? std::string_view(*what) : std::string_view();
  }
  /// Same storage (Python's `is`), where there is any.
  bool shares_with(const Value& other) const;

 private:
  using TextPtr = std::shared_ptr<const Text>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<Object>;
  struct Undefined {
    std::shared_ptr<const std::string> what;
  };
  struct None {};
  using State =
      std::variant<Undefined, None, bool, int64_t, double, TextPtr, ListPtr, DictPtr, ObjectPtr>;

  State state_;
};

/// Which of Python's ordered things a list stands for: they print and index differently.
/// `generator` is what filters such as `map` give: read once, no length, no index.
enum class ListKind : uint8_t { list, tuple, range, keys, values, items, generator };

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::list;
  uint32_t depth = 1;           ///< levels of lists and dicts, itself included
  mutable size_t consumed = 0;  ///< of a generator: elements already read
};

/// Keys in order of insertion; a key may be any value that Python can hash.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  uint32_t depth = 1;

  const Value* find(std::string_view key) const;
  const Value* find(Budget& budget, const Value& key) const;
  /// A new key goes to the end, an old one keeps its place.
  void set(Budget& budget, Value key, Value value);

 private:
  /// Built once there are many keys; views into the keys' shared text.
  std::unordered_map<std::string_view, size_t> text_index_;
  std::optional<size_t> position(Budget& budget, const Value& key) const;
};

/// Fails on a key that Python cannot hash.
void check_hashable(Budget& budget, const Value& key);

/// Arguments of a call, evaluated.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// A value with behaviour: functions, bound methods, macros, namespaces, `loop`.
class Object {
 public:
  Object() = default;
  /// For those that hold values: they count as a level around them.
  explicit Object(const std::vector<Value>& held);
  virtual ~Object() = default;
  uint32_t depth() const { return depth_; }
  virtual std::optional<Value> attribute(std::string_view name) = 0;
  virtual bool callable() const = 0;
  virtual Value call(Interpreter& interpreter, const Args& args) = 0;
  /// As `str()` shows it.
  virtual std::string describe() const = 0;

 private:
  uint32_t depth_ = 0;
};

/// Fails when the levels are more than base/limits.hpp allows.
Value make_list(std::vector<Value> items, ListKind kind = ListKind::list);
Value make_dict(Dict dict);

/// Python's bool(), ==, <; `less` fails on types that have no order.
bool truthy(const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
bool less(Budget& budget, const Value& a, const Value& b);

/// "str", "int", "NoneType": as Python's messages call it.
std::string_view type_name(const Value& value);
/// "'x' is undefined".
[[noreturn]] void fail_undefined(const Value& value);

}  // namespace outrider::model::jinja
