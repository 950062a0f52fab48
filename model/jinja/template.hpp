#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "model/jinja/ast.hpp"
#include "model/jinja/interpreter.hpp"

namespace outrider::model::jinja {

/// A parsed template: immutable, rendered by any number of threads. The edge of the interpreter:
/// nothing throws from here.
struct Template {
  Body body;

  static Result<std::shared_ptr<const Template>> parse(std::string_view source);
  /// `variables` is an object; its order is kept.
  Result<std::string> render(const nlohmann::ordered_json& variables, std::chrono::sys_seconds now,
                             const RenderLimits& limits) const;
};

/// The bounds of base/limits.hpp.
RenderLimits default_limits();

/// Invalid UTF-8 is replaced; integers beyond 64 bits become floats. Throws TemplateError.
Value from_json(Budget& budget, const nlohmann::ordered_json& json);

}  // namespace outrider::model::jinja
