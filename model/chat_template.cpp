#include "model/chat_template.hpp"

#include "base/utf8.hpp"
#include "model/jinja/template.hpp"

namespace outrider::model {
namespace {

/// The format that most models without a template of their own were tuned on.
constexpr std::string_view k_chatml =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const jinja::Template> program)
    : program_(std::move(program)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string bos_token,
                                         std::string eos_token) {
  auto program = jinja::Template::parse(source);
  if (!program) return program.error();
  ChatTemplate out(std::move(program).value());
  out.source_digest_ = sha256(source);
  out.bos_token_ = std::move(bos_token);
  out.eos_token_ = std::move(eos_token);
  return out;
}

ChatTemplate ChatTemplate::chatml(std::string bos_token, std::string eos_token) {
  auto out = parse(k_chatml, std::move(bos_token), std::move(eos_token));
  OUTRIDER_CHECK(out.ok(), out.error().message);
  return std::move(out).value();
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages,
                                         const nlohmann::ordered_json& tools,
                                         bool add_generation_prompt,
                                         const nlohmann::ordered_json& extra, WallTime now) const {
  if (!messages.is_array()) {
    return fail(ErrorCode::invalid_argument, "messages is not a list", "messages");
  }
  if (!extra.is_null() && !extra.is_object()) {
    return fail(ErrorCode::invalid_argument, "template variables are not an object",
                "chat_template_kwargs");
  }
  // transformers passes tools and documents even when there are none: defined, but none.
  nlohmann::ordered_json variables = {{"messages", messages},
                                      {"tools", tools},
                                      {"documents", nullptr},
                                      {"add_generation_prompt", add_generation_prompt}};
  if (!bos_token_.empty()) variables["bos_token"] = bos_token_;
  if (!eos_token_.empty()) variables["eos_token"] = eos_token_;
  for (const auto& [name, value] : extra.items()) variables[name] = value;
  auto text = program_->render(variables, now, jinja::default_limits());
  if (!text) {
    Error error = text.error();
    error.field = "messages";
    return error;
  }
  return text;
}

}  // namespace outrider::model
