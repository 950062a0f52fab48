#include "model/jinja/globals.hpp"

#include <ctime>

#include "base/limits.hpp"
#include "model/jinja/filters.hpp"
#include "model/jinja/objects.hpp"
#include "model/jinja/print.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

Value make_object(std::shared_ptr<Object> object) {
  return Value(std::move(object));
}

Value range_function(Interpreter& in, const Value&, const Args& args) {
  if (!args.keywords.empty() || args.positional.empty() || args.positional.size() > 3) {
    fail_value("range expected 1 to 3 arguments");
  }
  for (const Value& value : args.positional) {
    if (!value.is_integral()) fail_value("range takes integers");
  }
  const auto& given = args.positional;
  const int64_t start = given.size() > 1 ? given[0].integral() : 0;
  const int64_t stop = given.size() > 1 ? given[1].integral() : given[0].integral();
  const int64_t step = given.size() > 2 ? given[2].integral() : 1;
  if (step == 0) fail_value("range() arg 3 must not be zero");
  std::vector<Value> items;
  // The distance as unsigned: the two ends may be 2^64 - 1 apart.
  const bool empty = step > 0 ? start >= stop : start <= stop;
  if (!empty) {
    const uint64_t span = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                   : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
    const uint64_t count = (span - 1) / stride + 1;
    if (count > static_cast<uint64_t>(limits::template_range_max)) {
      fail_value("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                 std::to_string(limits::template_range_max) + ").");
    }
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      // Unsigned: the product alone may pass 2^63.
      items.emplace_back(
          static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step)));
    }
  }
  return in.list(std::move(items), ListKind::range);
}

/// The pairs of dict(mapping or pairs, **keywords), also namespace's.
Dict dict_of(Interpreter& in, const Args& args) {
  Dict out;
  if (args.positional.size() > 1) fail_value("dict expected at most 1 argument");
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.is(Kind::dict)) {
      in.budget().charge(source.dict().items.size());
      out = source.dict();
    } else {
      for (const Value& item : in.elements(source)) {
        std::vector<Value> pair = in.elements(item);
        if (pair.size() != 2) fail_value("a dict is made of pairs");
        out.set(in.budget(), std::move(pair[0]), std::move(pair[1]));
      }
    }
  }
  for (const auto& [name, value] : args.keywords) out.set(in.budget(), Value(name), value);
  return out;
}

Value dict_function(Interpreter& in, const Value&, const Args& args) {
  return make_dict(dict_of(in, args));
}

Value namespace_function(Interpreter& in, const Value&, const Args& args) {
  auto space = std::make_shared<Namespace>();
  const Dict attributes = dict_of(in, args);
  for (const auto& [name, value] : attributes.items) {
    if (!name.is_string()) fail_value("attribute names must be strings");
    in.budget().charge(attributes.items.size());
    space->set(name.text(), value);
  }
  in.keep(space);
  return make_object(std::move(space));
}

Value raise_exception_function(Interpreter& in, const Value&, const Args& args) {
  const auto given = bind(args, {"message"}, "raise_exception", 1);
  fail_value(to_text(in.budget(), *given[0]));
}

/// strftime as Python's naive datetime has it: no time zone, no microseconds.
Value strftime_function(Interpreter& in, const Value&, const Args& args) {
  const auto given = bind(args, {"format"}, "strftime_now", 1);
  if (!given[0]->is_string()) fail_value("strftime_now takes a string");
  const std::string& format = given[0]->text();
  const std::time_t seconds = in.now().time_since_epoch().count();
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) fail_value("the time is out of range");
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    constexpr std::string_view flags = "-_0^#";
    std::string item = "%";
    while (i + 2 < format.size() && flags.find(format[i + 1]) != std::string_view::npos) {
      item += format[++i];
    }
    const char letter = format[++i];
    if (letter == 'z' || letter == 'Z') continue;
    if (letter == 'f') {
      out += "000000";
      continue;
    }
    item += letter;
    char buffer[256];
    out.append(buffer, std::strftime(buffer, sizeof(buffer), item.c_str(), &parts));
  }
  return in.text(std::move(out));
}

/// joiner(sep): nothing the first time, `sep` from then on.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator)
      : Object(std::vector<Value>{separator}), separator_(std::move(separator)) {}
  std::optional<Value> attribute(std::string_view) override { return std::nullopt; }
  bool callable() const override { return true; }
  Value call(Interpreter&, const Args&) override {
    return std::exchange(used_, true) ? separator_ : Value("");
  }
  std::string describe() const override { return "<Joiner>"; }

 private:
  Value separator_;
  bool used_ = false;
};

Value joiner_function(Interpreter&, const Value&, const Args& args) {
  const auto given = bind(args, {"sep"}, "joiner");
  return make_object(std::make_shared<Joiner>(given[0] != nullptr ? *given[0] : Value(", ")));
}

}  // namespace

std::vector<std::pair<std::string, Value>> make_globals() {
  constexpr std::pair<std::string_view, Function::Code> functions[] = {
      {"range", range_function},
      {"dict", dict_function},
      {"namespace", namespace_function},
      {"joiner", joiner_function},
      {"raise_exception", raise_exception_function},
      {"strftime_now", strftime_function},
  };
  std::vector<std::pair<std::string, Value>> out;
  for (const auto& [name, code] : functions) {
    out.emplace_back(name, make_object(std::make_shared<Function>(name, code)));
  }
  return out;
}

}  // namespace outrider::model::jinja
