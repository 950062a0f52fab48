// Chat templates: any text as a template, any JSON as its variables. The input is the template, a
// zero byte, and the JSON; without a zero byte the variables are a fixed conversation.

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/utf8.hpp"
#include "model/jinja/template.hpp"

namespace {

using namespace outrider;
using Json = nlohmann::ordered_json;

/// Small, so that an input that only burns time ends soon.
constexpr model::jinja::RenderLimits k_limits = {
    .work = 4'000'000, .nesting = 800, .output_bytes = size_t{1} << 20};

constexpr const char* k_conversation = R"({
  "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "h\u00e9 \ud83e\udd8a"},
               {"role": "assistant", "content": null,
                "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null]}}}]},
               {"role": "tool", "content": [{"type": "text", "text": "t"}]}],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
  "add_generation_prompt": true, "numbers": [3, 1, 2], "text": "a b, c\n"})";

void require(bool holds) {
  if (!holds) std::abort();
}

void check_error(const Error& error) {
  require(error.message.find("line ") != std::string::npos);
  require(error.code != ErrorCode::internal);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Json conversation = Json::parse(k_conversation);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  const std::string_view source = input.substr(0, split);
  const auto program = model::jinja::Template::parse(source);
  if (!program) {
    check_error(program.error());
    return 0;
  }
  Json variables = conversation;
  if (split != std::string_view::npos) {
    const std::string_view text = input.substr(split + 1);
    variables = Json::parse(text.begin(), text.end(), nullptr, false);
    if (variables.is_discarded()) variables = Json::object();
  }
  const std::chrono::sys_seconds now(std::chrono::seconds(1'767'323'045));
  const auto text = (*program)->render(variables, now, k_limits);
  if (!text) {
    check_error(text.error());
    return 0;
  }
  // A template has no state: the same variables give the same text.
  require(utf8_valid(*text));
  const auto again = (*program)->render(variables, now, k_limits);
  require(again.ok() && *again == *text);
  return 0;
}
