#include "model/jinja/parser.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "model/jinja/parser_level.hpp"

namespace outrider::model::jinja {

// -- tokens
// ----------------------------------------------------------------------------------------
const Token& Parser::advance() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::is_op(const Token& token, std::string_view op) {
  return token.kind == TokenKind::op && token.text == op;
}

bool Parser::is_word(const Token& token, std::string_view word) {
  return token.kind == TokenKind::name && token.text == word;
}

bool Parser::is_any_word(const Words& words) const {
  return std::any_of(words.begin(), words.end(), [&](auto word) { return is_word(word); });
}

bool Parser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  advance();
  return true;
}

bool Parser::skip_word(std::string_view word) {
  if (!is_word(word)) return false;
  advance();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail_here("expected '" + std::string(op) + "', got " + describe(current()));
}

void Parser::expect_kind(TokenKind kind) {
  if (current().kind == kind) {
    advance();
    return;
  }
  Token expected;
  expected.kind = kind;
  fail_here("expected " + describe(expected) + ", got " + describe(current()));
}

std::string Parser::expect_name() {
  if (current().kind != TokenKind::name) fail_here("expected a name, got " + describe(current()));
  return advance().text;
}

void Parser::fail_here(const std::string& message) const {
  throw TemplateError(ErrorCode::corrupt, message, current().line);
}

// -- depth
// -----------------------------------------------------------------------------------------
void Parser::adopt(Node& parent, const Node* child) const {
  if (child == nullptr) return;
  parent.depth = std::max(parent.depth, child->depth + 1);
  if (parent.depth > limits::template_syntax_depth_max) {
    throw TemplateError(ErrorCode::too_large, "the template nests too deeply", parent.line);
  }
}

void Parser::adopt(Node& parent, const CallArgs& args) const {
  for (const ExprPtr& arg : args.positional) adopt(parent, arg.get());
  for (const auto& [name, arg] : args.keywords) adopt(parent, arg.get());
  adopt(parent, args.star.get());
  adopt(parent, args.double_star.get());
}

void Parser::adopt(Node& parent, const Body& body) const {
  for (const StatementPtr& statement : body) adopt(parent, statement.get());
}

// -- statements
// ------------------------------------------------------------------------------------
Body Parser::parse() {
  return parse_until({});
}

/// Statements up to a tag that begins with one of `ends`, which is left to the caller; with none,
/// up to the end of the template.
Body Parser::parse_until(const Words& ends) {
  const Level level(*this);
  Body body;
  while (current().kind != TokenKind::end) {
    const Token& token = advance();
    if (token.kind == TokenKind::data) {
      auto data = node<Data>(token.line);
      data->text = token.text;
      body.push_back(std::move(data));
    } else if (token.kind == TokenKind::variable_begin) {
      auto print = node<Print>(token.line);
      print->value = parse_tuple(true, {}, false);
      adopt(*print, print->value.get());
      body.push_back(std::move(print));
      expect_kind(TokenKind::variable_end);
    } else {
      if (is_any_word(ends)) return body;
      body.push_back(parse_statement());
      expect_kind(TokenKind::block_end);
    }
  }
  if (!ends.empty()) {
    fail_here("unexpected end of template, expected '" + std::string(ends.back()) + "'");
  }
  return body;
}

/// The rest of an opening tag, then its body.
Body Parser::parse_block_body(const Words& ends) {
  skip_op(":");
  expect_kind(TokenKind::block_end);
  return parse_until(ends);
}

StatementPtr Parser::parse_statement() {
  using Rule = StatementPtr (Parser::*)();
  static constexpr std::pair<std::string_view, Rule> rules[] = {
      {"if", &Parser::parse_if},
      {"for", &Parser::parse_for},
      {"set", &Parser::parse_set},
      {"with", &Parser::parse_with},
      {"filter", &Parser::parse_filter_block},
      {"generation", &Parser::parse_generation},
      {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call_block},
      {"break", &Parser::parse_loop_control},
      {"continue", &Parser::parse_loop_control},
      {"print", &Parser::parse_print},
  };
  for (const auto& [word, rule] : rules) {
    if (is_word(word)) return (this->*rule)();
  }
  for (const std::string_view word :
       {"block", "extends", "include", "import", "from", "autoescape"}) {
    if (!is_word(word)) continue;
    throw TemplateError(ErrorCode::unsupported,
                        "'" + std::string(word) + "' is not supported in a chat template",
                        current().line);
  }
  fail_here("unknown tag " + describe(current()));
}

StatementPtr Parser::parse_if() {
  auto out = node<If>(current().line);
  ++conditions_;
  do {
    advance();  // if, elif
    ExprPtr test = parse_tuple(false, {}, false);
    adopt(*out, test.get());
    Body body = parse_block_body({"elif", "else", "endif"});
    adopt(*out, body);
    out->branches.emplace_back(std::move(test), std::move(body));
  } while (is_word("elif"));
  if (advance().text == "else") {
    out->otherwise = parse_block_body({"endif"});
    adopt(*out, out->otherwise);
    advance();
  }
  --conditions_;
  return out;
}

StatementPtr Parser::parse_for() {
  auto out = node<For>(advance().line);
  out->target = parse_target(false, "in");
  if (!skip_word("in")) fail_here("expected 'in', got " + describe(current()));
  out->items = parse_tuple(false, "recursive", false);
  if (skip_word("if")) out->test = parse_expression();
  out->recursive = skip_word("recursive");
  ++loops_;
  out->body = parse_block_body({"else", "endfor"});
  --loops_;
  if (advance().text == "else") {
    out->otherwise = parse_block_body({"endfor"});
    advance();
  }
  adopt(*out, out->items.get());
  adopt(*out, out->test.get());
  adopt(*out, out->body);
  adopt(*out, out->otherwise);
  return out;
}

StatementPtr Parser::parse_set() {
  auto out = node<Set>(advance().line);
  out->target = parse_target(true, {});
  if (skip_op("=")) {
    out->value = parse_tuple(true, {}, false);
  } else {
    out->block = true;
    while (skip_op("|")) out->value = parse_filter(std::move(out->value));
    out->body = parse_block_body({"endset"});
    advance();
  }
  adopt(*out, out->value.get());
  adopt(*out, out->body);
  return out;
}

StatementPtr Parser::parse_with() {
  auto out = node<Block>(advance().line);
  while (current().kind != TokenKind::block_end) {
    if (!out->variables.empty()) expect_op(",");
    Target target = parse_target_part(false);
    expect_op("=");
    ExprPtr value = parse_expression();
    adopt(*out, value.get());
    out->variables.emplace_back(std::move(target), std::move(value));
  }
  out->body = parse_block_body({"endwith"});
  advance();
  adopt(*out, out->body);
  return out;
}

StatementPtr Parser::parse_filter_block() {
  auto out = node<Block>(advance().line);
  do {
    out->filter = parse_filter(std::move(out->filter));
  } while (skip_op("|"));
  out->body = parse_block_body({"endfilter"});
  advance();
  adopt(*out, out->filter.get());
  adopt(*out, out->body);
  return out;
}

/// transformers' extension: marks what the model wrote; the text itself is what is inside.
StatementPtr Parser::parse_generation() {
  auto out = node<Block>(advance().line);
  out->body = parse_block_body({"endgeneration"});
  advance();
  adopt(*out, out->body);
  return out;
}

StatementPtr Parser::parse_loop_control() {
  if (loops_ == 0) fail_here("'" + current().text + "' outside of a loop");
  const Token& token = advance();
  auto out = node<LoopControl>(token.line);
  out->flow = token.text == "break" ? Flow::break_loop : Flow::continue_loop;
  return out;
}

StatementPtr Parser::parse_print() {
  auto out = node<Block>(advance().line);
  while (current().kind != TokenKind::block_end) {
    if (!out->body.empty()) expect_op(",");
    auto print = node<Print>(current().line);
    print->value = parse_expression();
    adopt(*print, print->value.get());
    out->body.push_back(std::move(print));
  }
  adopt(*out, out->body);
  return out;
}

}  // namespace outrider::model::jinja
