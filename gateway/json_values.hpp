#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "base/sampling_ranges.hpp"
#include "gateway/json_body.hpp"

/// Typed, ranged readers of JSON values. Each error names the field and says what was expected.
namespace outrider::gateway {

struct TextBounds {
  size_t bytes_min = 0;
  size_t bytes_max = 0;
};

/// "a string", "the number 3", …: what a value is, without repeating its content.
std::string describe(const Json& value);

/// An invalid_argument of that field.
Error invalid(std::string field, std::string message);
Error wrong_type(const std::string& field, std::string_view expected, const Json& value);

Result<float> read_number(const Json& value, const std::string& field, NumberRange range);
/// Integers, and floats with an integral value.
Result<int64_t> read_integer(const Json& value, const std::string& field, IntegerRange range);
Result<bool> read_bool(const Json& value, const std::string& field);
Result<void> bool_into(const Json& value, const std::string& field, bool& target);
Result<std::string> read_text(const Json& value, const std::string& field, TextBounds bounds);
/// Token ids: integers from 0 to limits::vocabulary_max - 1. The model's own size is checked later.
Result<std::vector<int32_t>> read_token_ids(const Json& value, const std::string& field,
                                            size_t count_max);

}  // namespace outrider::gateway
