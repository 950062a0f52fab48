#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.hpp"

/// A parsed template. Nodes are immutable and shared between renders; each evaluates itself on an
/// Interpreter. `depth` is the height of the tree below, bounded by the parser.
namespace outrider::model::jinja {

/// How a statement ended: `for` catches the last two.
enum class Flow : uint8_t { next, break_loop, continue_loop };

struct Node {
  explicit Node(uint32_t at) : line(at) {}
  virtual ~Node() = default;
  uint32_t line;
  uint32_t depth = 1;
};

struct Expr : Node {
  using Node::Node;
  virtual Value evaluate(Interpreter& in) const = 0;
};
using ExprPtr = std::unique_ptr<const Expr>;

struct Statement : Node {
  using Node::Node;
  virtual Flow execute(Interpreter& in) const = 0;
};
using StatementPtr = std::unique_ptr<const Statement>;
using Body = std::vector<StatementPtr>;

/// Arguments as written.
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         ///< *args
  ExprPtr double_star;  ///< **kwargs
};

using FilterFunction = Value (*)(Interpreter& in, const Value& value, const Args& args);
using TestFunction = bool (*)(Interpreter& in, const Value& value, const Args& args);

// -- expressions ---------------------------------------------------------------------------------
struct Constant final : Expr {
  using Expr::Expr;
  Value value;
  Value evaluate(Interpreter& in) const override;
};

struct Name final : Expr {
  using Expr::Expr;
  std::string name;
  Value evaluate(Interpreter& in) const override;
};

struct ListExpr final : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> items;
  bool tuple = false;
  Value evaluate(Interpreter& in) const override;
};

struct DictExpr final : Expr {
  using Expr::Expr;
  std::vector<std::pair<ExprPtr, ExprPtr>> items;
  Value evaluate(Interpreter& in) const override;
};

/// `then if test else otherwise`
struct Conditional final : Expr {
  using Expr::Expr;
  ExprPtr test, then, otherwise;  ///< otherwise may be null
  Value evaluate(Interpreter& in) const override;
};

enum class UnaryOp : uint8_t { logical_not, negate, plus };
struct Unary final : Expr {
  using Expr::Expr;
  UnaryOp op = UnaryOp::logical_not;
  ExprPtr operand;
  Value evaluate(Interpreter& in) const override;
};

enum class BinaryOp : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Binary final : Expr {
  using Expr::Expr;
  BinaryOp op = BinaryOp::add;
  ExprPtr left, right;
  Value evaluate(Interpreter& in) const override;
};

/// `and`, `or`: give one of their operands.
struct Logical final : Expr {
  using Expr::Expr;
  bool is_and = true;
  ExprPtr left, right;
  Value evaluate(Interpreter& in) const override;
};

/// `a ~ b ~ c`
struct Concat final : Expr {
  using Expr::Expr;
  std::vector<ExprPtr> parts;
  Value evaluate(Interpreter& in) const override;
};

enum class CompareOp : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };
/// `a < b < c`: each pair in turn, until one fails.
struct Compare final : Expr {
  using Expr::Expr;
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
  Value evaluate(Interpreter& in) const override;
};

struct GetAttribute final : Expr {
  using Expr::Expr;
  ExprPtr object;
  std::string name;
  Value evaluate(Interpreter& in) const override;
};

struct GetItem final : Expr {
  using Expr::Expr;
  ExprPtr object, index;
  Value evaluate(Interpreter& in) const override;
};

struct GetSlice final : Expr {
  using Expr::Expr;
  ExprPtr object, start, stop, step;  ///< the last three may be null
  Value evaluate(Interpreter& in) const override;
};

struct Call final : Expr {
  using Expr::Expr;
  ExprPtr callee;
  CallArgs args;
  Value evaluate(Interpreter& in) const override;
};

struct Filter final : Expr {
  using Expr::Expr;
  ExprPtr input;  ///< null in a filter block: the block's text
  std::string name;
  FilterFunction function = nullptr;  ///< null if unknown: fails when reached
  CallArgs args;
  Value evaluate(Interpreter& in) const override;
};

struct Test final : Expr {
  using Expr::Expr;
  ExprPtr input;
  std::string name;
  TestFunction function = nullptr;
  CallArgs args;
  Value evaluate(Interpreter& in) const override;
};

// -- statements ----------------------------------------------------------------------------------
struct Data final : Statement {
  using Statement::Statement;
  std::string text;
  Flow execute(Interpreter& in) const override;
};

struct Print final : Statement {
  using Statement::Statement;
  ExprPtr value;
  Flow execute(Interpreter& in) const override;
};

/// What is assigned to: `x`, `ns.x` or `a, (b, c)`.
struct Target {
  std::string name;
  std::string attribute;      ///< of the namespace `name`; empty otherwise
  std::vector<Target> parts;  ///< of a tuple
};

struct If final : Statement {
  using Statement::Statement;
  std::vector<std::pair<ExprPtr, Body>> branches;  ///< if, elif …
  Body otherwise;
  Flow execute(Interpreter& in) const override;
};

struct For final : Statement {
  using Statement::Statement;
  Target target;
  ExprPtr items, test;  ///< test may be null
  bool recursive = false;
  Body body, otherwise;
  Flow execute(Interpreter& in) const override;
};

struct LoopControl final : Statement {
  using Statement::Statement;
  Flow flow = Flow::break_loop;
  Flow execute(Interpreter& in) const override;
};

struct Set final : Statement {
  using Statement::Statement;
  Target target;
  ExprPtr value;  ///< in a set block: the filters on its text, or null
  bool block = false;
  Body body;
  Flow execute(Interpreter& in) const override;
};

/// `with`, `filter` and `generation` blocks: a scope of their own.
struct Block final : Statement {
  using Statement::Statement;
  std::vector<std::pair<Target, ExprPtr>> variables;
  ExprPtr filter;  ///< may be null
  Body body;
  Flow execute(Interpreter& in) const override;
};

/// Signature and body of a macro or of a call block.
struct MacroCode {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  ///< default may be null
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Body body;
  uint32_t line = 0;
};

struct Macro final : Statement {
  using Statement::Statement;
  MacroCode code;
  Flow execute(Interpreter& in) const override;
};

struct CallBlock final : Statement {
  using Statement::Statement;
  MacroCode code;
  std::unique_ptr<const Call> call;
  Flow execute(Interpreter& in) const override;
};

}  // namespace outrider::model::jinja
