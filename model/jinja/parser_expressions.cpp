#include <algorithm>

#include "model/jinja/filters.hpp"
#include "model/jinja/parser.hpp"
#include "model/jinja/parser_level.hpp"

namespace outrider::model::jinja {
namespace {

template <class Op>
const Op* find_op(std::span<const std::pair<std::string_view, Op>> table, const Token& token) {
  if (token.kind != TokenKind::op) return nullptr;
  for (const auto& [text, op] : table) {
    if (text == token.text) return &op;
  }
  return nullptr;
}

constexpr std::pair<std::string_view, CompareOp> k_compare_ops[] = {
    {"==", CompareOp::eq}, {"!=", CompareOp::ne}, {"<", CompareOp::lt},
    {"<=", CompareOp::le}, {">", CompareOp::gt},  {">=", CompareOp::ge}};
constexpr std::pair<std::string_view, BinaryOp> k_sum_ops[] = {{"+", BinaryOp::add},
                                                               {"-", BinaryOp::subtract}};
constexpr std::pair<std::string_view, BinaryOp> k_product_ops[] = {{"*", BinaryOp::multiply},
                                                                   {"/", BinaryOp::divide},
                                                                   {"//", BinaryOp::floor_divide},
                                                                   {"%", BinaryOp::modulo}};

}  // namespace

void Parser::note_name(const std::string& name) {
  for (MacroCode* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_varargs |= name == "varargs";
    macro->uses_kwargs |= name == "kwargs";
  }
}

ExprPtr Parser::binary(BinaryOp op, uint32_t line, ExprPtr left, ExprPtr right) const {
  auto out = node<Binary>(line);
  adopt(*out, left.get());
  adopt(*out, right.get());
  out->op = op;
  out->left = std::move(left);
  out->right = std::move(right);
  return out;
}

/// One expression, or several with commas between them.
ExprPtr Parser::parse_tuple(bool with_conditional, std::string_view end_word, bool in_parentheses) {
  const auto at_end = [&] {
    return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
           is_op(")") || (!end_word.empty() && is_word(end_word));
  };
  auto tuple = node<ListExpr>(current().line);
  tuple->tuple = true;
  bool is_tuple = false;
  while (!at_end()) {
    tuple->items.push_back(parse_expression(with_conditional));
    adopt(*tuple, tuple->items.back().get());
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->items.empty()) return std::move(tuple->items.front());
  if (!in_parentheses) fail_here("expected an expression, got " + describe(current()));
  return tuple;
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  const Level level(*this);
  if (!with_conditional) return parse_or();
  ExprPtr expr = parse_or();
  while (is_word("if")) {
    auto out = node<Conditional>(advance().line);
    ++conditions_;
    out->then = std::move(expr);
    out->test = parse_or();
    if (skip_word("else")) out->otherwise = parse_expression();
    --conditions_;
    adopt(*out, out->then.get());
    adopt(*out, out->test.get());
    adopt(*out, out->otherwise.get());
    expr = std::move(out);
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (is_word("or")) {
    auto out = node<Logical>(advance().line);
    out->is_and = false;
    out->left = std::move(left);
    out->right = parse_and();
    adopt(*out, out->left.get());
    adopt(*out, out->right.get());
    left = std::move(out);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (is_word("and")) {
    auto out = node<Logical>(advance().line);
    out->left = std::move(left);
    out->right = parse_not();
    adopt(*out, out->left.get());
    adopt(*out, out->right.get());
    left = std::move(out);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!is_word("not")) return parse_compare();
  const Level level(*this);
  auto out = node<Unary>(advance().line);
  out->operand = parse_not();
  adopt(*out, out->operand.get());
  return out;
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  auto out = node<Compare>(first->line);
  while (true) {
    const CompareOp* op = find_op<CompareOp>(k_compare_ops, current());
    CompareOp found = op != nullptr ? *op : CompareOp::in;
    if (op == nullptr && is_word("not") && is_word(look(), "in")) {
      advance();
      found = CompareOp::not_in;
    } else if (op == nullptr && !is_word("in")) {
      break;
    }
    advance();
    out->rest.emplace_back(found, parse_sum());
    adopt(*out, out->rest.back().second.get());
  }
  if (out->rest.empty()) return first;
  adopt(*out, first.get());
  out->first = std::move(first);
  return out;
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (const BinaryOp* op = find_op<BinaryOp>(k_sum_ops, current())) {
    const uint32_t line = advance().line;
    left = binary(*op, line, std::move(left), parse_concat());
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!is_op("~")) return first;
  auto out = node<Concat>(current().line);
  adopt(*out, first.get());
  out->parts.push_back(std::move(first));
  while (skip_op("~")) {
    out->parts.push_back(parse_product());
    adopt(*out, out->parts.back().get());
  }
  return out;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (const BinaryOp* op = find_op<BinaryOp>(k_product_ops, current())) {
    const uint32_t line = advance().line;
    left = binary(*op, line, std::move(left), parse_power());
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_op("**")) {
    const uint32_t line = advance().line;
    left = binary(BinaryOp::power, line, std::move(left), parse_unary(true));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  const Level level(*this);
  ExprPtr expr;
  if (is_op("-") || is_op("+")) {
    auto out = node<Unary>(current().line);
    out->op = advance().text == "-" ? UnaryOp::negate : UnaryOp::plus;
    out->operand = parse_unary(false);
    adopt(*out, out->operand.get());
    expr = std::move(out);
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filter ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  if (token.kind == TokenKind::name) return parse_name();
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  if (skip_op("(")) {
    ExprPtr inner = parse_tuple(true, {}, true);
    expect_op(")");
    return inner;
  }
  auto out = node<Constant>(token.line);
  if (token.kind == TokenKind::string) {
    std::string text;
    while (current().kind == TokenKind::string) text += advance().text;
    out->value = Value(std::move(text));
  } else if (token.kind == TokenKind::integer) {
    out->value = Value(advance().integer);
  } else if (token.kind == TokenKind::number) {
    out->value = Value(advance().number);
  } else {
    fail_here("unexpected " + describe(token));
  }
  return out;
}

ExprPtr Parser::parse_name() {
  const Token& token = advance();
  const std::string& name = token.text;
  const bool is_true = name == "true" || name == "True";
  if (is_true || name == "false" || name == "False" || name == "none" || name == "None") {
    auto out = node<Constant>(token.line);
    out->value = name[0] == 'n' || name[0] == 'N' ? Value::none() : Value(is_true);
    return out;
  }
  note_name(name);
  auto out = node<Name>(token.line);
  out->name = name;
  return out;
}

ExprPtr Parser::parse_list() {
  auto out = node<ListExpr>(advance().line);
  while (!is_op("]")) {
    if (!out->items.empty()) expect_op(",");
    if (is_op("]")) break;
    out->items.push_back(parse_expression());
    adopt(*out, out->items.back().get());
  }
  advance();
  return out;
}

ExprPtr Parser::parse_dict() {
  auto out = node<DictExpr>(advance().line);
  while (!is_op("}")) {
    if (!out->items.empty()) expect_op(",");
    if (is_op("}")) break;
    ExprPtr key = parse_expression();
    expect_op(":");
    ExprPtr value = parse_expression();
    adopt(*out, key.get());
    adopt(*out, value.get());
    out->items.emplace_back(std::move(key), std::move(value));
  }
  advance();
  return out;
}

}  // namespace outrider::model::jinja
