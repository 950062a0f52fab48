#include "gateway/json_values.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <sstream>
#include <utility>

#include "base/limits.hpp"

namespace outrider::gateway {
namespace {

std::string number_text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return value.dump();
    case Json::value_t::number_float:  // JSON has no word for the others, which RPC can send
      return std::isfinite(value.get<double>()) ? value.dump() : number_text(value.get<double>());
    default:
      return "something else";
  }
}

Error invalid(std::string field, std::string message) {
  return fail(ErrorCode::invalid_argument, std::move(message), std::move(field));
}

Error wrong_type(const std::string& field, std::string_view expected, const Json& value) {
  return fail(ErrorCode::invalid_argument,
              field + " must be " + std::string(expected) + ", not " + describe(value), field);
}

Result<float> read_number(const Json& value, const std::string& field, NumberRange range) {
  constexpr double k_none = std::numeric_limits<double>::quiet_NaN();
  const double number = value.is_number() ? value.get<double>() : k_none;
  // Looked at twice: a tiny double may round to the excluded end.
  const double narrowed = range.holds(number) ? static_cast<float>(number) : k_none;
  if (!range.holds(narrowed)) return wrong_type(field, describe(range), value);
  return static_cast<float>(narrowed);
}

Result<int64_t> read_integer(const Json& value, const std::string& field, IntegerRange range) {
  std::optional<int64_t> number;
  if (value.is_number_unsigned()) {
    const auto raw = value.get<uint64_t>();
    if (raw <= static_cast<uint64_t>(INT64_MAX)) number = static_cast<int64_t>(raw);
  } else if (value.is_number_integer()) {
    number = value.get<int64_t>();
  } else if (value.is_number_float()) {
    const double raw = value.get<double>();
    if (std::abs(raw) <= 0x1p53 && raw == std::floor(raw)) number = static_cast<int64_t>(raw);
  }
  if (!number || !range.holds(*number)) return wrong_type(field, describe(range), value);
  return *number;
}

Result<bool> read_bool(const Json& value, const std::string& field) {
  if (!value.is_boolean()) return wrong_type(field, "true or false", value);
  return value.get<bool>();
}

Result<void> bool_into(const Json& value, const std::string& field, bool& target) {
  auto flag = read_bool(value, field);
  if (!flag) return flag.error();
  target = *flag;
  return {};
}

Result<std::string> read_text(const Json& value, const std::string& field, TextBounds bounds) {
  if (!value.is_string()) return wrong_type(field, "a string", value);
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() < bounds.bytes_min) {
    return fail(ErrorCode::invalid_argument, field + " must not be empty", field);
  }
  if (text.size() > bounds.bytes_max) {
    return fail(ErrorCode::invalid_argument,
                field + " has " + std::to_string(text.size()) + " bytes, the limit is " +
                    std::to_string(bounds.bytes_max),
                field);
  }
  return text;
}

Result<std::vector<int32_t>> read_token_ids(const Json& value, const std::string& field,
                                            size_t count_max) {
  if (!value.is_array()) return wrong_type(field, "an array of token ids", value);
  if (value.size() > count_max) {
    return fail(ErrorCode::invalid_argument,
                field + " has " + std::to_string(value.size()) + " entries, the limit is " +
                    std::to_string(count_max),
                field);
  }
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    // The name is only built for an error: a prompt may have a million ids.
    auto id = read_integer(value[i], field, {0, limits::vocabulary_max - 1});
    if (!id) {
      return read_integer(value[i], field + "[" + std::to_string(i) + "]",
                          {0, limits::vocabulary_max - 1})
          .error();
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace outrider::gateway
