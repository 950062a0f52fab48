#include "base/limits.hpp"
#include "model/jinja/parser.hpp"
#include "model/jinja/parser_level.hpp"

namespace outrider::model::jinja {

void Parser::parse_signature(MacroCode& code) {
  expect_op("(");
  while (!is_op(")")) {
    if (!code.parameters.empty()) expect_op(",");
    std::string name = expect_name();
    ExprPtr fallback;
    if (skip_op("=")) {
      fallback = parse_expression();
    } else if (!code.parameters.empty() && code.parameters.back().second != nullptr) {
      fail_here("non-default argument follows default argument");
    }
    code.parameters.emplace_back(std::move(name), std::move(fallback));
  }
  expect_op(")");
}

void Parser::parse_macro_body(MacroCode& code, std::string_view end) {
  macros_.push_back(&code);
  const uint32_t loops = std::exchange(loops_, 0);
  code.body = parse_block_body({end});
  loops_ = loops;
  macros_.pop_back();
  advance();
}

StatementPtr Parser::parse_macro() {
  auto out = node<Macro>(advance().line);
  out->code.line = out->line;
  out->code.name = expect_name();
  parse_signature(out->code);
  parse_macro_body(out->code, "endmacro");
  for (const auto& [name, fallback] : out->code.parameters) adopt(*out, fallback.get());
  adopt(*out, out->code.body);
  return out;
}

StatementPtr Parser::parse_call_block() {
  auto out = node<CallBlock>(advance().line);
  out->code.line = out->line;
  out->code.name = "caller";
  if (is_op("(")) parse_signature(out->code);
  ExprPtr call = parse_expression();
  if (dynamic_cast<const Call*>(call.get()) == nullptr) fail_here("expected call");
  adopt(*out, call.get());
  out->call.reset(static_cast<const Call*>(call.release()));
  parse_macro_body(out->code, "endcall");
  for (const auto& [name, fallback] : out->code.parameters) adopt(*out, fallback.get());
  adopt(*out, out->code.body);
  return out;
}

/// `a`, `a, b`, `(a, b), c` or, where allowed, `ns.a`.
Target Parser::parse_target(bool with_namespace, std::string_view end_word) {
  Target first = parse_target_part(with_namespace);
  if (!is_op(",")) return first;
  Target tuple;
  tuple.parts.push_back(std::move(first));
  while (skip_op(",")) {
    const bool at_end = is_op("=") || is_op(")") || current().kind == TokenKind::block_end ||
                        (!end_word.empty() && is_word(end_word));
    if (at_end) break;
    tuple.parts.push_back(parse_target_part(with_namespace));
  }
  return tuple;
}

Target Parser::parse_target_part(bool with_namespace) {
  const Level level(*this);
  if (skip_op("(")) {
    Target tuple = parse_target(with_namespace, {});
    expect_op(")");
    return tuple;
  }
  Target out;
  out.name = expect_name();
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (out.name == constant) fail_here("can't assign to '" + out.name + "'");
  }
  if (with_namespace && skip_op(".")) {
    note_name(out.name);
    out.attribute = expect_name();
  }
  return out;
}

}  // namespace outrider::model::jinja
