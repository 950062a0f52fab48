#include <algorithm>

#include "model/jinja/interpreter.hpp"
#include "model/jinja/operators.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

using Kind = Value::Kind;

struct Range {
  int64_t start, stop, step;
  size_t count() const {
    if (step > 0 ? start >= stop : start <= stop) return 0;
    const int64_t span = step > 0 ? stop - start : start - stop;
    const int64_t stride = step > 0 ? step : -step;
    return static_cast<size_t>((span - 1) / stride + 1);
  }
};

int64_t bound(const Value& value, int64_t fallback, int64_t length, bool forward) {
  if (value.is_none()) return fallback;
  if (!value.is_integral()) fail_value("slice indices must be integers or None");
  int64_t index = value.integral();
  if (index < 0) index = std::max(index + length, int64_t{-1});
  if (forward) return std::clamp(index, int64_t{0}, length);
  return std::min(index, length - 1);
}

/// Python's slice.indices().
Range indices(const Value& start, const Value& stop, const Value& step, size_t size) {
  const auto length = static_cast<int64_t>(size);
  if (!step.is_none() && !step.is_integral()) {
    fail_value("slice indices must be integers or None");
  }
  // A stride beyond the length takes one element, whatever its exact value.
  const int64_t stride =
      step.is_none() ? 1 : std::clamp(step.integral(), -(length + 1), length + 1);
  if (stride == 0) fail_value("slice step cannot be zero");
  const bool forward = stride > 0;
  return {bound(start, forward ? 0 : length - 1, length, forward),
          bound(stop, forward ? length : -1, length, forward), stride};
}

Value slice_text(Interpreter& in, const Value& object, const Value& start, const Value& stop,
                 const Value& step) {
  const std::string& text = object.text();
  in.budget().charge(text.size());
  const size_t length = count_code_points(text);
  const Range range = indices(start, stop, step, length);
  const size_t count = range.count();
  if (range.step == 1 || length == text.size()) {
    std::string out;
    if (range.step == 1 && count > 0) {
      const size_t begin = byte_offset(text, static_cast<size_t>(range.start));
      const size_t end = begin + byte_offset(std::string_view(text).substr(begin), count);
      out = text.substr(begin, end - begin);
    } else {
      for (size_t i = 0; i < count; ++i) {
        out += text[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)];
      }
    }
    return Value(std::move(out), object.safe());
  }
  const std::u32string codes = to_code_points(text);
  std::u32string out;
  for (size_t i = 0; i < count; ++i) {
    out += codes[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)];
  }
  return Value(to_utf8(out), object.safe());
}

}  // namespace

Value slice(Interpreter& in, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is_string()) return slice_text(in, object, start, stop, step);
  if (!object.is(Kind::list) || object.list().kind > ListKind::range) {
    fail_value("'" + std::string(type_name(object)) + "' object cannot be sliced");
  }
  const List& list = object.list();
  const Range range = indices(start, stop, step, list.items.size());
  const size_t count = range.count();
  in.budget().charge(k_element_work * count);
  std::vector<Value> out;
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    out.push_back(
        list.items[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)]);
  }
  return make_list(std::move(out), list.kind);
}

}  // namespace outrider::model::jinja
