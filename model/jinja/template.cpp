#include "model/jinja/template.hpp"

#include <new>

#include "base/limits.hpp"
#include "base/utf8.hpp"
#include "model/jinja/lexer.hpp"
#include "model/jinja/parser.hpp"

namespace outrider::model::jinja {
namespace {

Error to_error(const TemplateError& error, uint32_t line) {
  return fail(error.code, "chat template, line " +
                              std::to_string(error.line != 0 ? error.line : line) + ": " +
                              error.what());
}

std::string clean_text(const std::string& text) {
  return utf8_valid(text) ? text : utf8_replace_invalid(text);
}

}  // namespace

Value from_json(Budget& budget, const nlohmann::ordered_json& json) {
  using Type = nlohmann::ordered_json::value_t;
  const Nesting nesting(budget);
  budget.charge(k_element_work);
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<int64_t>());
    case Type::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX)) return Value(static_cast<double>(number));
      return Value(static_cast<int64_t>(number));
    }
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string:
      return Value(clean_text(json.get_ref<const std::string&>()));
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(budget, item));
      return make_list(std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        dict.set(budget, Value(clean_text(key)), from_json(budget, item));
      }
      return make_dict(std::move(dict));
    }
    default:
      return Value::none();
  }
}

Result<std::shared_ptr<const Template>> Template::parse(std::string_view source) {
  if (source.size() > limits::template_source_bytes_max) {
    return fail(ErrorCode::too_large,
                "chat template of " + std::to_string(source.size()) + " bytes, at most " +
                    std::to_string(limits::template_source_bytes_max) + " are read");
  }
  try {
    auto out = std::make_shared<Template>();
    out->body = Parser(tokenize(utf8_replace_invalid(source))).parse();
    return std::shared_ptr<const Template>(std::move(out));
  } catch (const TemplateError& error) {
    return to_error(error, 1);
  }
}

Result<std::string> Template::render(const nlohmann::ordered_json& variables,
                                     std::chrono::sys_seconds now,
                                     const RenderLimits& limits) const {
  Interpreter interpreter(limits, now);
  try {
    const Value context = from_json(interpreter.budget(), variables);
    if (!context.is(Value::Kind::dict)) fail_value("the variables are not an object");
    return interpreter.render(body, context.dict());
  } catch (const TemplateError& error) {
    return to_error(error, interpreter.line());
  }
}

RenderLimits default_limits() {
  return {.work = limits::template_work_max,
          .nesting = limits::template_nesting_max,
          .output_bytes = limits::template_output_bytes_max};
}

}  // namespace outrider::model::jinja
