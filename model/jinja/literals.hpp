#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outrider::model::jinja {

struct NumberLiteral {
  size_t length = 0;
  bool is_float = false;
  int64_t integer = 0;
  double number = 0;
  std::string error;
};

/// The number at `at`, a digit; after a point (`a.0.1`) only an integer is read.
NumberLiteral read_number(std::string_view text, size_t at, bool after_point);

/// The value of a string literal between its quotes: Python's escapes.
std::string unescape(std::string_view literal, std::string& error);

/// \r\n and \r become \n.
std::string normalize_newlines(std::string_view text);

}  // namespace outrider::model::jinja
