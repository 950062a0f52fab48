#include "model/jinja/filters.hpp"
#include "model/jinja/parser.hpp"
#include "model/jinja/parser_level.hpp"

namespace outrider::model::jinja {

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (is_op(".") || is_op("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (is_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
  while (true) {
    if (skip_op("|")) {
      expr = parse_filter(std::move(expr));
    } else if (is_word("is")) {
      expr = parse_test(std::move(expr));
    } else if (is_op("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
  const Token& token = advance();
  if (token.text == "[") return parse_bracket(std::move(object), token.line);
  const Token& member = advance();
  if (member.kind == TokenKind::name) {
    auto out = node<GetAttribute>(token.line);
    adopt(*out, object.get());
    out->object = std::move(object);
    out->name = member.text;
    return out;
  }
  if (member.kind != TokenKind::integer) fail_here("expected name or number");
  auto index = node<Constant>(member.line);
  index->value = Value(member.integer);
  auto out = node<GetItem>(token.line);
  adopt(*out, object.get());
  out->object = std::move(object);
  out->index = std::move(index);
  return out;
}

/// Behind the `[`: an index, a slice, or several with commas (a tuple as index).
ExprPtr Parser::parse_bracket(ExprPtr object, uint32_t line) {
  if (is_op("]")) fail_here("expected an index");
  ExprPtr index = is_op(":") ? nullptr : parse_expression();
  if (is_op(":")) return parse_slice(std::move(object), std::move(index), line);
  if (is_op(",")) {
    auto tuple = node<ListExpr>(line);
    tuple->tuple = true;
    adopt(*tuple, index.get());
    tuple->items.push_back(std::move(index));
    while (skip_op(",")) {
      tuple->items.push_back(parse_expression());
      adopt(*tuple, tuple->items.back().get());
    }
    index = std::move(tuple);
  }
  expect_op("]");
  auto out = node<GetItem>(line);
  adopt(*out, object.get());
  adopt(*out, index.get());
  out->object = std::move(object);
  out->index = std::move(index);
  return out;
}

ExprPtr Parser::parse_slice(ExprPtr object, ExprPtr start, uint32_t line) {
  expect_op(":");
  auto out = node<GetSlice>(line);
  if (!is_op(":") && !is_op("]")) out->stop = parse_expression();
  if (skip_op(":") && !is_op("]")) out->step = parse_expression();
  expect_op("]");
  out->object = std::move(object);
  out->start = std::move(start);
  adopt(*out, out->object.get());
  adopt(*out, out->start.get());
  adopt(*out, out->stop.get());
  adopt(*out, out->step.get());
  return out;
}

CallArgs Parser::parse_call_args() {
  CallArgs args;
  const auto require = [&](bool allowed) {
    if (!allowed) fail_here("invalid syntax for function call expression");
  };
  expect_op("(");
  bool first = true;
  while (!is_op(")")) {
    if (!std::exchange(first, false)) {
      expect_op(",");
      if (is_op(")")) break;
    }
    if (skip_op("*")) {
      require(args.star == nullptr && args.double_star == nullptr);
      args.star = parse_expression();
    } else if (skip_op("**")) {
      require(args.double_star == nullptr);
      args.double_star = parse_expression();
    } else if (current().kind == TokenKind::name && is_op(look(), "=")) {
      require(args.double_star == nullptr);
      std::string name = advance().text;
      advance();
      for (const auto& [other, value] : args.keywords) require(other != name);
      args.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      require(args.star == nullptr && args.double_star == nullptr && args.keywords.empty());
      args.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return args;
}

ExprPtr Parser::parse_call(ExprPtr callee) {
  auto out = node<Call>(current().line);
  out->args = parse_call_args();
  out->callee = std::move(callee);
  adopt(*out, out->callee.get());
  adopt(*out, out->args);
  return out;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name += "." + expect_name();
  return name;
}

/// Behind the `|`. `input` is null at the head of a filter block.
ExprPtr Parser::parse_filter(ExprPtr input) {
  auto out = node<Filter>(current().line);
  out->name = parse_dotted_name();
  out->function = find_filter(out->name);
  if (out->function == nullptr && conditions_ == 0) {
    throw TemplateError(ErrorCode::unsupported, "no filter named '" + out->name + "'", out->line);
  }
  if (is_op("(")) out->args = parse_call_args();
  out->input = std::move(input);
  adopt(*out, out->input.get());
  adopt(*out, out->args);
  return out;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  auto out = node<Test>(advance().line);
  const bool negated = skip_word("not");
  out->name = parse_dotted_name();
  out->function = find_test(out->name);
  if (out->function == nullptr && conditions_ == 0) {
    throw TemplateError(ErrorCode::unsupported, "no test named '" + out->name + "'", out->line);
  }
  parse_test_args(out->args);
  out->input = std::move(input);
  adopt(*out, out->input.get());
  adopt(*out, out->args);
  if (!negated) return out;
  auto inverse = node<Unary>(out->line);
  adopt(*inverse, out.get());
  inverse->operand = std::move(out);
  return inverse;
}

void Parser::parse_test_args(CallArgs& args) {
  if (is_op("(")) {
    args = parse_call_args();
    return;
  }
  const TokenKind kind = current().kind;
  const bool has_argument = kind == TokenKind::name || kind == TokenKind::string ||
                            kind == TokenKind::integer || kind == TokenKind::number || is_op("[") ||
                            is_op("{");
  if (!has_argument || is_any_word({"else", "or", "and"})) return;
  if (is_word("is")) fail_here("You cannot chain multiple tests with is");
  args.positional.push_back(parse_postfix(parse_primary()));
}

}  // namespace outrider::model::jinja
