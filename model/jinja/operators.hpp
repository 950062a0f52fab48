#pragma once

#include <string>

#include "model/jinja/ast.hpp"
#include "model/jinja/value.hpp"

namespace outrider::model::jinja {

/// Python's arithmetic, with integers of 64 bits: an overflow is an error.
Value apply_binary(Interpreter& in, BinaryOp op, const Value& left, const Value& right);
Value apply_unary(UnaryOp op, const Value& operand);
bool apply_compare(Interpreter& in, CompareOp op, const Value& left, const Value& right);

/// `item in container`
bool contains(Interpreter& in, const Value& container, const Value& item);

/// object[start:stop:step] of text, lists and tuples.
Value slice(Interpreter& in, const Value& object, const Value& start, const Value& stop,
            const Value& step);

/// `format % args` of text.
std::string percent_format(Interpreter& in, const std::string& format, const Value& args);

/// HTML's five characters as entities, as MarkupSafe writes them.
std::string escape_html(std::string_view text);

}  // namespace outrider::model::jinja
