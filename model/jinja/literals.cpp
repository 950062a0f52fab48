#include "model/jinja/literals.hpp"

#include <charconv>
#include <cmath>
#include <limits>

#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

char at_or_nul(std::string_view text, size_t at) {
  return at < text.size() ? text[at] : '\0';
}

/// End of a run of digits with single underscores between them; `at` if there is none.
size_t digits_end(std::string_view text, size_t at, int base) {
  size_t end = at;
  while (true) {
    size_t next = end;
    if (next > at && at_or_nul(text, next) == '_') ++next;
    if (digit_value(at_or_nul(text, next)) >= base) return end;
    end = next + 1;
  }
}

std::string digits_alone(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

/// End of a float literal at `at`, or 0.
size_t float_end(std::string_view text, size_t at) {
  size_t end = digits_end(text, at, 10);
  bool is_float = false;
  if (at_or_nul(text, end) == '.' && digits_end(text, end + 1, 10) > end + 1) {
    end = digits_end(text, end + 1, 10);
    is_float = true;
  }
  const char e = at_or_nul(text, end);
  if (e == 'e' || e == 'E') {
    const char sign = at_or_nul(text, end + 1);
    const size_t from = end + (sign == '+' || sign == '-' ? 2 : 1);
    if (digits_end(text, from, 10) > from) {
      end = digits_end(text, from, 10);
      is_float = true;
    }
  }
  return is_float ? end : 0;
}

NumberLiteral read_integer(std::string_view text, size_t at) {
  NumberLiteral out;
  int base = 10;
  size_t begin = at;
  const char second = at_or_nul(text, at + 1);
  if (text[at] == '0') {
    const int marked = second == 'x' || second == 'X'   ? 16
                       : second == 'o' || second == 'O' ? 8
                       : second == 'b' || second == 'B' ? 2
                                                        : 0;
    const size_t from = at + (at_or_nul(text, at + 2) == '_' ? 3 : 2);
    if (marked != 0 && digits_end(text, from, marked) > from) {
      base = marked;
      begin = from;
    }
  }
  // "0" and "00" are integers, "01" is a 0 and then a 1, which no grammar accepts.
  const size_t end =
      base == 10 && text[at] == '0' ? digits_end(text, at, 1) : digits_end(text, begin, base);
  const std::string digits = digits_alone(text.substr(begin, end - begin));
  const auto parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), out.integer, base);
  if (parsed.ec != std::errc()) out.error = "integer literal does not fit 64 bits";
  out.length = end - at;
  return out;
}

/// Reads `count` hexadecimal digits behind `at`; false if they are not there.
bool read_hex(std::string_view text, size_t at, size_t count, char32_t& code) {
  code = 0;
  if (at + count > text.size()) return false;
  for (size_t i = 0; i < count; ++i) {
    const int digit = digit_value(text[at + i]);
    if (digit >= 16) return false;
    code = code * 16 + static_cast<char32_t>(digit);
  }
  return true;
}

/// Python encodes a literal as ASCII with \x, \u or \U first, and only then reads escapes: a
/// backslash before another character stays, and so does that character's code.
void append_escaped_wide(std::string& out, char32_t code) {
  constexpr std::string_view hex = "0123456789abcdef";
  const int digits = code < 0x100 ? 2 : code < 0x10000 ? 4 : 8;
  out += '\\';
  out += digits == 2 ? 'x' : digits == 4 ? 'u' : 'U';
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += hex[(code >> shift) & 0xF];
}

/// \x, \u and \U; returns the number of digits used, 0 on an error.
size_t append_hex_escape(std::string& out, std::string_view text, size_t at, char letter,
                         std::string& error) {
  const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  char32_t code = 0;
  if (!read_hex(text, at, digits, code)) {
    error = std::string("truncated \\") + letter + " escape";
    return 0;
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
    error = "illegal Unicode character in an escape";
    return 0;
  }
  append_utf8(out, code);
  return digits;
}

size_t append_octal(std::string& out, std::string_view text, size_t at) {
  char32_t code = 0;
  size_t used = 0;
  while (used < 3 && digit_value(at_or_nul(text, at + used)) < 8) {
    code = code * 8 + static_cast<char32_t>(digit_value(text[at + used]));
    ++used;
  }
  append_utf8(out, code);
  return used;
}

}  // namespace

NumberLiteral read_number(std::string_view text, size_t at, bool after_point) {
  const size_t end = after_point ? 0 : float_end(text, at);
  if (end == 0) return read_integer(text, at);
  NumberLiteral out;
  out.is_float = true;
  out.length = end - at;
  const std::string digits = digits_alone(text.substr(at, out.length));
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out.number);
  if (parsed.ec == std::errc::result_out_of_range) {
    const bool tiny =
        digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos;
    out.number = tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return out;
}

std::string unescape(std::string_view raw, std::string& error) {
  const std::string literal = normalize_newlines(raw);
  const std::string_view text(literal);
  constexpr std::string_view letters = "abfnrtv\\'\"\n";
  constexpr std::string_view values = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t at = 0; at < text.size() && error.empty();) {
    if (text[at] != '\\') {
      out += text[at++];
      continue;
    }
    if (++at == text.size()) break;
    const char c = text[at];
    if (const size_t known = letters.find(c); known != std::string_view::npos) {
      if (known < values.size()) out += values[known];  // else a line end: left out
      ++at;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      at += 1 + append_hex_escape(out, text, at + 1, c, error);
    } else if (c >= '0' && c <= '7') {
      at += append_octal(out, text, at);
    } else if (c == 'N') {
      error = "\\N escapes are not supported";
    } else if (static_cast<uint8_t>(c) >= 0x80) {
      append_escaped_wide(out, decode_at(text, at));
    } else {
      out += '\\';
      out += c;
      ++at;
    }
  }
  return out;
}

std::string normalize_newlines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  return out;
}

}  // namespace outrider::model::jinja
