#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/jinja/ast.hpp"
#include "model/jinja/lexer.hpp"

namespace outrider::model::jinja {

/// Recursive descent over the tokens of one template, by Jinja's grammar. Used once. Throws
/// TemplateError.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Body parse();

 private:
  using Words = std::vector<std::string_view>;

  // -- tokens (parser.cpp)
  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& advance();
  bool is_op(std::string_view op) const { return is_op(current(), op); }
  bool is_word(std::string_view word) const { return is_word(current(), word); }
  static bool is_op(const Token& token, std::string_view op);
  static bool is_word(const Token& token, std::string_view word);
  bool is_any_word(const Words& words) const;
  bool skip_op(std::string_view op);
  bool skip_word(std::string_view word);
  void expect_op(std::string_view op);
  void expect_kind(TokenKind kind);
  std::string expect_name();
  [[noreturn]] void fail_here(const std::string& message) const;

  // -- depth: of the recursion here, and of the tree that results
  class Level;
  template <class T>
  std::unique_ptr<T> node(uint32_t line) const {
    return std::make_unique<T>(line);
  }
  /// Makes `parent` at least one deeper than `child`; null is allowed.
  void adopt(Node& parent, const Node* child) const;
  void adopt(Node& parent, const CallArgs& args) const;
  void adopt(Node& parent, const Body& body) const;

  // -- statements (parser.cpp)
  Body parse_until(const Words& ends);
  Body parse_block_body(const Words& ends);
  StatementPtr parse_statement();
  StatementPtr parse_if();
  StatementPtr parse_for();
  StatementPtr parse_set();
  StatementPtr parse_with();
  StatementPtr parse_filter_block();
  StatementPtr parse_generation();
  StatementPtr parse_macro();
  StatementPtr parse_call_block();
  StatementPtr parse_loop_control();
  StatementPtr parse_print();
  void parse_signature(MacroCode& code);
  void parse_macro_body(MacroCode& code, std::string_view end);
  Target parse_target(bool with_namespace, std::string_view end_word);
  Target parse_target_part(bool with_namespace);

  // -- expressions (parser_expressions.cpp)
  ExprPtr parse_tuple(bool with_conditional, std::string_view end_word, bool in_parentheses);
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters_and_tests(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_bracket(ExprPtr object, uint32_t line);
  ExprPtr parse_slice(ExprPtr object, ExprPtr start, uint32_t line);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  CallArgs parse_call_args();
  void parse_test_args(CallArgs& args);
  std::string parse_dotted_name();
  void note_name(const std::string& name);
  ExprPtr binary(BinaryOp op, uint32_t line, ExprPtr left, ExprPtr right) const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  uint32_t levels_ = 0;
  uint32_t loops_ = 0;       ///< loops around here, inside the current macro
  uint32_t conditions_ = 0;  ///< ifs around here: an unknown filter then fails only when reached
  std::vector<MacroCode*> macros_;
};

}  // namespace outrider::model::jinja
