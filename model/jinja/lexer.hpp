#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace outrider::model::jinja {

enum class TokenKind : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  number,
  op,
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  ///< data, name, operator, or the value of a string literal
  uint32_t line = 0;
  int64_t integer = 0;
  double number = 0;
};

/// Splits a template (valid UTF-8) by Jinja's rules with trim_blocks and lstrip_blocks on; white
/// space control, comments and raw blocks are done here, so that the parser sees only what counts.
/// The last token is `end`. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

/// "end of print statement", "'for'": how messages name a token.
std::string describe(const Token& token);

}  // namespace outrider::model::jinja
