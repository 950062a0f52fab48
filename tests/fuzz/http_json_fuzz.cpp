// Bodies of generation requests: whatever the bytes, the parser answers with an error that JSON can
// carry or with a request whose every field is in range, which the tokenizer and the chat template
// then take or refuse. The first byte chooses chat or completions.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/limits.hpp"
#include "base/utf8.hpp"
#include "gateway/error_reply.hpp"
#include "gateway/prompt.hpp"
#include "gateway/request_parser.hpp"
#include "model/gguf.hpp"

namespace {

using namespace outrider;
using gateway::Json;

void require(bool holds) {
  if (!holds) std::abort();
}

gateway::ServedModel make_served() {
  const auto file = model::GgufFile::open("tests/support/models/tiny-llama.gguf");
  require(file.ok());
  auto tokenizer = model::Tokenizer::from_gguf(*file);
  require(tokenizer.ok());
  gateway::ServedModel served;
  served.name = "tiny";
  served.text.tokenizer = *tokenizer;
  served.text.chat_template = std::make_shared<model::ChatTemplate>(model::ChatTemplate::chatml());
  served.context_tokens = 512;
  return served;
}

void check_error(const Error& error) {
  require(!error.message.empty());
  const Json body = Json::parse(gateway::error_body(gateway::error_reply(error)), nullptr, false);
  require(!body.is_discarded());
  const Json& code = body["error"]["code"];
  require(code.is_number_integer() ? code.get<int>() >= 400 : code == "model_not_found");
}

void check_ranges(const gateway::ParsedRequest& r) {
  const auto& s = r.generation.sampling;
  for (const float value : {s.temperature, s.top_p, s.min_p, s.repetition_penalty,
                            s.presence_penalty, s.frequency_penalty}) {
    require(std::isfinite(value));
  }
  require(s.temperature >= 0 && s.temperature <= 2 && s.top_p > 0 && s.top_p <= 1);
  require(s.min_p >= 0 && s.min_p <= 1 && s.repetition_penalty > 0 && s.top_k >= 0);
  require(s.logit_bias.size() <= limits::logit_bias_entries_max);
  require(r.generation.choices >= 1 && r.generation.choices <= limits::choices_max);
  require(r.generation.logprobs >= -1);
  require(r.generation.logprobs <= static_cast<int32_t>(limits::top_logprobs_max));
  require(r.prompts.size() <= limits::prompts_max && r.messages.size() <= limits::messages_max);
  for (const auto& stop : r.generation.stop.stop_strings) {
    require(!stop.empty() && stop.size() <= limits::stop_string_bytes_max && utf8_valid(stop));
  }
  require(r.kind == gateway::RequestKind::chat ? !r.messages.empty() : !r.prompts.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const gateway::ServedModels models = {
      std::make_shared<const gateway::ServedModel>(make_served())};
  if (size == 0) return 0;
  const auto kind = (data[0] & 1) ? gateway::RequestKind::chat : gateway::RequestKind::completion;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto parsed = gateway::parse_request_body(kind, body);
  if (!parsed) {
    check_error(parsed.error());
    return 0;
  }
  check_ranges(*parsed);
  const auto prepared = gateway::prepare_request(std::move(*parsed), models, {});
  if (!prepared) {
    check_error(prepared.error());
    return 0;
  }
  for (const auto& request : prepared->prompts) {
    require(!request.prompt.empty());
    require(request.prompt.size() + request.stop.max_tokens <= models.front()->context_tokens);
    require(request.stop.min_tokens <= request.stop.max_tokens);
  }
  return 0;
}
