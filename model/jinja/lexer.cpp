#include "model/jinja/lexer.hpp"

#include <algorithm>
#include <array>

#include "model/jinja/error.hpp"
#include "model/jinja/literals.hpp"
#include "model/jinja/text.hpp"

namespace outrider::model::jinja {
namespace {

constexpr size_t npos = std::string_view::npos;

/// Line ends become \n, and one at the very end is dropped.
std::string normalize(std::string_view source) {
  std::string out = normalize_newlines(source);
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize(source)), view_(text_) {}

  std::vector<Token> run() {
    while (at_ < view_.size()) lex_root();
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(const std::string& message) {
    advance_line();
    throw TemplateError(ErrorCode::corrupt, message, line_);
  }

  /// Counts the lines up to `at_`, once.
  void advance_line() {
    line_ += static_cast<uint32_t>(std::count(view_.begin() + static_cast<ptrdiff_t>(counted_),
                                              view_.begin() + static_cast<ptrdiff_t>(at_), '\n'));
    counted_ = at_;
  }

  Token& push(TokenKind kind, std::string text = {}) {
    advance_line();
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  bool starts(size_t at, std::string_view what) const {
    return view_.substr(std::min(at, view_.size()), what.size()) == what;
  }
  size_t skip_space(size_t at) const {
    while (at < view_.size()) {
      size_t next = at;
      if (!is_space(decode_at(view_, next))) break;
      at = next;
    }
    return at;
  }
  char char_at(size_t at) const { return at < view_.size() ? view_[at] : '\0'; }

  /// `+%}`, `-%}` with the space behind it, `%}` with one line end; 0 if none is at `at`.
  size_t closing(size_t at, std::string_view close, bool trims) const {
    if (trims && char_at(at) == '+' && starts(at + 1, close)) return at + 1 + close.size();
    if (char_at(at) == '-' && starts(at + 1, close)) return skip_space(at + 1 + close.size());
    if (!starts(at, close)) return 0;
    const size_t end = at + close.size();
    return trims && char_at(end) == '\n' ? end + 1 : end;
  }

  /// Data up to `end`, without what the tag's sign and lstrip_blocks take from its end.
  void push_data(size_t end, char sign, bool variable) {
    std::string_view data = view_.substr(at_, end - at_);
    if (sign == '-') {
      data = strip_space(data, {.left = false, .right = true});
    } else if (sign != '+' && !variable) {
      const size_t line_end = data.rfind('\n');
      const size_t from = line_end == npos ? 0 : line_end + 1;
      const bool line_starting = from > 0 || at_ == 0 || view_[at_ - 1] == '\n';
      if (line_starting && strip_space(data.substr(from), {}).empty()) data = data.substr(0, from);
    }
    if (!data.empty()) push(TokenKind::data, std::string(data));
    at_ = end;
  }

  void lex_root() {
    size_t open = at_;
    while (true) {
      open = view_.find('{', open);
      if (open == npos) {
        push_data(view_.size(), '+', false);
        return;
      }
      const char kind = char_at(open + 1);
      if (kind == '%' || kind == '{' || kind == '#') break;
      ++open;
    }
    const char kind = view_[open + 1];
    const char after = char_at(open + 2);
    const char sign = after == '-' || after == '+' ? after : '\0';
    const size_t inside = open + (sign ? 3 : 2);
    push_data(open, sign, kind == '{');
    if (kind == '#') {
      lex_comment(inside);
    } else if (kind == '%' && !lex_raw(inside)) {
      push(TokenKind::block_begin);
      at_ = inside;
      lex_tag("%}", TokenKind::block_end, true);
    } else if (kind == '{') {
      push(TokenKind::variable_begin);
      at_ = inside;
      lex_tag("}}", TokenKind::variable_end, false);
    }
  }

  void lex_comment(size_t inside) {
    const size_t close = view_.find("#}", inside);
    if (close == npos) fail_at("Missing end of comment tag");
    const char before = close > inside ? view_[close - 1] : '\0';
    const size_t from = before == '-' || before == '+' ? close - 1 : close;
    at_ = closing(from, "#}", true);
  }

  /// `{% raw %}` … `{% endraw %}`; false if another tag is at `inside`.
  bool lex_raw(size_t inside) {
    size_t at = skip_space(inside);
    if (!starts(at, "raw")) return false;
    const size_t begin = closing(skip_space(at + 3), "%}", false);
    if (begin == 0) return false;
    for (size_t open = view_.find("{%", begin); open != npos; open = view_.find("{%", open + 1)) {
      const char after = char_at(open + 2);
      const char sign = after == '-' || after == '+' ? after : '\0';
      at = skip_space(open + (sign ? 3 : 2));
      if (!starts(at, "endraw")) continue;
      const size_t end = closing(skip_space(at + 6), "%}", true);
      if (end == 0) continue;
      at_ = begin;
      push_data(open, sign, false);
      at_ = end;
      return true;
    }
    fail_at("Missing end of raw directive");
  }

  void lex_tag(std::string_view close, TokenKind kind, bool trims) {
    std::string open_brackets;
    while (at_ < view_.size()) {
      if (open_brackets.empty()) {
        if (const size_t end = closing(at_, close, trims)) {
          push(kind);
          at_ = end;
          return;
        }
      }
      const size_t next = skip_space(at_);
      if (next != at_) {
        at_ = next;
      } else {
        lex_expression_token(open_brackets);
      }
    }
  }

  void lex_expression_token(std::string& open_brackets) {
    const char c = view_[at_];
    if (is_digit_char(c)) {
      lex_number();
    } else if (is_name_char(c)) {
      size_t end = at_;
      while (end < view_.size() && is_name_char(view_[end])) ++end;
      push(TokenKind::name, std::string(view_.substr(at_, end - at_)));
      at_ = end;
    } else if (c == '\'' || c == '"') {
      lex_string(c);
    } else {
      lex_operator(open_brackets);
    }
  }

  void lex_number() {
    const NumberLiteral literal = read_number(view_, at_, at_ > 0 && view_[at_ - 1] == '.');
    if (!literal.error.empty()) fail_at(literal.error);
    Token& token = push(literal.is_float ? TokenKind::number : TokenKind::integer);
    token.integer = literal.integer;
    token.number = literal.number;
    at_ += literal.length;
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < view_.size() && view_[end] != quote) end += view_[end] == '\\' ? 2 : 1;
    if (end >= view_.size()) fail_at(std::string("unexpected char '") + quote + "'");
    std::string error;
    std::string value = unescape(view_.substr(at_ + 1, end - at_ - 1), error);
    if (!error.empty()) fail_at(error);
    push(TokenKind::string, std::move(value));
    at_ = end + 1;
  }

  void lex_operator(std::string& open_brackets) {
    constexpr std::array<std::string_view, 26> operators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* const op = std::find_if(operators.begin(), operators.end(),
                                        [&](std::string_view o) { return starts(at_, o); });
    if (op == operators.end()) fail_at("unexpected character in a tag");
    const char c = (*op)[0];
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) {
        fail_at(std::string("unexpected '") + c + "'");
      }
      open_brackets.pop_back();
    }
    push(TokenKind::op, std::string(*op));
    at_ += op->size();
  }

  const std::string text_;
  const std::string_view view_;
  size_t at_ = 0;
  size_t counted_ = 0;
  uint32_t line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "template data";
    case TokenKind::variable_begin:
      return "begin of print statement";
    case TokenKind::variable_end:
      return "end of print statement";
    case TokenKind::block_begin:
      return "begin of statement block";
    case TokenKind::block_end:
      return "end of statement block";
    case TokenKind::integer:
    case TokenKind::number:
      return "a number";
    case TokenKind::string:
      return "a string";
    case TokenKind::end:
      return "end of template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace outrider::model::jinja
