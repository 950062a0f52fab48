#include "base/limits.hpp"
#include "gateway/json_values.hpp"
#include "gateway/request_fields.hpp"

namespace outrider::gateway {
namespace {

constexpr TextBounds k_name_bounds{1, limits::name_bytes_max};
constexpr TextBounds k_long{0, limits::http_body_bytes_max};

/// A string, or text parts joined by a newline, as vLLM joins them.
Result<Json> normalise_content(const Json& content, const std::string& field) {
  if (content.is_string()) return content;
  if (!content.is_array()) return wrong_type(field, "a string or an array of parts", content);
  std::string joined;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string name = field + "[" + std::to_string(i) + "]";
    const Json& part = content[i];
    if (!part.is_object()) return wrong_type(name, "an object with a type", part);
    auto type = read_text(part.value("type", Json()), name + ".type", k_name_bounds);
    if (!type) return type.error();
    if (*type != "text") {
      return fail(ErrorCode::unsupported, name + ".type can only be \"text\" here", name + ".type");
    }
    auto text = read_text(part.value("text", Json()), name + ".text", k_long);
    if (!text) return text.error();
    if (i > 0) joined += '\n';
    joined += *text;
  }
  return Json(joined);
}

/// Arguments travel as a JSON string; templates want the object.
Result<Json> normalise_tool_calls(const Json& calls, const std::string& field, JsonBudget& budget) {
  if (!calls.is_array()) return wrong_type(field, "an array", calls);
  Json out = Json::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string name = field + "[" + std::to_string(i) + "]";
    const Json& call = calls[i];
    if (!call.is_object()) return wrong_type(name, "an object", call);
    const Json function = call.value("function", Json());
    if (!function.is_object()) return wrong_type(name + ".function", "an object", function);
    auto called = read_text(function.value("name", Json()), name + ".function.name", k_name_bounds);
    if (!called) return called.error();
    Json arguments = function.value("arguments", Json::object());
    if (arguments.is_string()) {
      const auto& text = arguments.get_ref<const std::string&>();
      const std::string what = name + ".function.arguments";
      auto parsed =
          text.empty() ? Result<Json>(Json::object()) : parse_json_body(text, budget, what);
      if (!parsed) return fail(ErrorCode::invalid_argument, parsed.error().message, what);
      arguments = std::move(*parsed);
    }
    Json clean = {{"type", "function"},
                  {"function", {{"name", *called}, {"arguments", std::move(arguments)}}}};
    if (call.contains("id")) {
      auto id = read_text(call["id"], name + ".id", {0, limits::name_bytes_max});
      if (!id) return id.error();
      clean["id"] = *id;
    }
    out.push_back(std::move(clean));
  }
  return out;
}

Result<std::string> read_role(const Json& message, const std::string& name) {
  auto role = read_text(message.value("role", Json()), name + ".role", k_name_bounds);
  if (!role) return role.error();
  // OpenAI renamed it; the templates of open models know the older word.
  if (*role == "developer") return std::string("system");
  if (*role == "system" || *role == "user" || *role == "assistant" || *role == "tool" ||
      *role == "function") {
    return role;
  }
  return fail(ErrorCode::invalid_argument,
              name + ".role must be system, developer, user, assistant, tool or function",
              name + ".role");
}

Result<Json> normalise_message(const Json& message, const std::string& name, JsonBudget& budget) {
  if (!message.is_object()) return wrong_type(name, "an object", message);
  auto role = read_role(message, name);
  if (!role) return role.error();
  Json clean = {{"role", *role}};
  if (!message.value("function_call", Json()).is_null()) {
    return fail(ErrorCode::unsupported,
                name + ".function_call is not supported, its successor is tool_calls",
                name + ".function_call");
  }
  const Json content = message.value("content", Json());
  const Json calls = message.value("tool_calls", Json());
  if (!calls.is_null() && !calls.empty()) {
    auto normal = normalise_tool_calls(calls, name + ".tool_calls", budget);
    if (!normal) return normal.error();
    clean["tool_calls"] = std::move(*normal);
  }
  if (!content.is_null()) {
    auto normal = normalise_content(content, name + ".content");
    if (!normal) return normal.error();
    clean["content"] = std::move(*normal);
  } else if (*role == "assistant") {  // sent back as it came: only calls, or nothing at all
    clean["content"] = "";
  } else {
    return wrong_type(name + ".content", "a string or an array of parts", content);
  }
  for (const char* key : {"name", "tool_call_id"}) {
    if (!message.contains(key) || message[key].is_null()) continue;
    auto text = read_text(message[key], name + "." + key, {0, limits::name_bytes_max});
    if (!text) return text.error();
    clean[key] = *text;
  }
  return clean;
}

}  // namespace

Result<Json> normalise_messages(const Json& value, JsonBudget& budget) {
  if (!value.is_array()) return wrong_type("messages", "an array", value);
  if (value.empty()) {
    return fail(ErrorCode::invalid_argument, "messages must not be empty", "messages");
  }
  if (value.size() > limits::messages_max) {
    return fail(ErrorCode::invalid_argument,
                "messages has " + std::to_string(value.size()) + " entries, the limit is " +
                    std::to_string(limits::messages_max),
                "messages");
  }
  Json out = Json::array();
  for (size_t i = 0; i < value.size(); ++i) {
    auto message = normalise_message(value[i], "messages[" + std::to_string(i) + "]", budget);
    if (!message) return message.error();
    out.push_back(std::move(*message));
  }
  return out;
}

Result<void> check_tools(const Json& value) {
  if (!value.is_array()) return wrong_type("tools", "an array", value);
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string name = "tools[" + std::to_string(i) + "]";
    const Json& tool = value[i];
    if (!tool.is_object()) return wrong_type(name, "an object", tool);
    if (tool.value("type", Json()) != "function") {
      return fail(ErrorCode::invalid_argument, name + ".type must be \"function\"", name + ".type");
    }
    const Json function = tool.value("function", Json());
    if (!function.is_object()) return wrong_type(name + ".function", "an object", function);
    auto text = read_text(function.value("name", Json()), name + ".function.name", k_name_bounds);
    if (!text) return text.error();
  }
  return {};
}

}  // namespace outrider::gateway
