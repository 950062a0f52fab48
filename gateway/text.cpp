#include "gateway/text.hpp"

#include <chrono>

namespace outrider::gateway {

std::vector<int32_t> encode(std::string_view text, bool add_special, const ServedModel& served) {
  return served.text.tokenizer->encode(text, {.add_special = add_special, .parse_special = true});
}

std::string decode(std::span<const int32_t> ids, const ServedModel& served) {
  return served.text.tokenizer->decode(ids);
}

Result<void> check_token_ids(std::span<const int32_t> ids, const std::string& field,
                             const ServedModel& served) {
  for (const int32_t id : ids) {
    if (served.text.tokenizer->contains(id)) continue;
    return fail(ErrorCode::invalid_argument,
                field + " holds the token id " + std::to_string(id) + ", the vocabulary has " +
                    std::to_string(served.text.tokenizer->size()),
                field);
  }
  return {};
}

Result<std::vector<int32_t>> chat_prompt_tokens(const ChatPrompt& chat, const ServedModel& served) {
  using namespace std::chrono;
  const auto now = floor<seconds>(system_clock::now());
  auto text = served.text.chat_template->render(
      chat.messages, chat.tools, chat.add_generation_prompt, chat.template_variables, now);
  if (!text) return text.error();
  return encode(*text, chat.add_special_tokens, served);
}

}  // namespace outrider::gateway
