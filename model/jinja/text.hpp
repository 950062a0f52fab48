#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Text as Python sees it: UTF-8 here, counted and indexed by code point. All input is valid UTF-8
/// (the edges replace what is not), so decoding needs no error path.
namespace outrider::model::jinja {

/// The code point at `at`; moves `at` behind it.
char32_t decode_at(std::string_view text, size_t& at);
void append_utf8(std::string& out, char32_t code);
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);

size_t count_code_points(std::string_view text);
/// Byte offset of code point `index`, or the size if there are fewer.
size_t byte_offset(std::string_view text, size_t index);

/// str.isspace() of one character.
bool is_space(char32_t code);
bool is_printable(char32_t code);
/// Letters that have case, as title() and islower() see them.
bool is_cased(char32_t code);
bool is_alpha(char32_t code);
bool is_digit(char32_t code);

std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_title(std::string_view text);
std::string capitalize(std::string_view text);

struct StripSides {
  bool left = true;
  bool right = true;
};
/// Without white space at the given sides.
std::string_view strip_space(std::string_view text, StripSides sides);
/// Without the characters of `set` at the given sides.
std::string_view strip_set(std::string_view text, std::string_view set, StripSides sides);

/// Offset of `needle` at or after `from`, in linear time; npos if absent.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
/// Offset of the last `needle`.
size_t find_last_text(std::string_view text, std::string_view needle);

/// str.splitlines(): at every line boundary that Unicode knows.
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

/// repr() of a float: shortest digits that read back, always with a point or an exponent.
std::string float_text(double value);
/// repr() of a str.
std::string quoted_text(std::string_view text);

}  // namespace outrider::model::jinja
