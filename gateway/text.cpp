#include "gateway/text.hpp"

#include <algorithm>

namespace outrider::gateway {

namespace {

/// A tokenizer that normalises (NFC) may shrink text by at most this before it is split.
constexpr uint64_t k_normalisation_shrink = 4;

}  // namespace

uint32_t longest_token_bytes(const model::Tokenizer& tokenizer) {
  size_t longest = 1;
  for (uint32_t id = 0; id < tokenizer.size(); ++id) {
    longest = std::max(longest, tokenizer.token_bytes(static_cast<int32_t>(id)).size());
  }
  return static_cast<uint32_t>(longest);
}

Result<std::vector<int32_t>> encode(std::string_view text, bool add_special,
                                    const ServedModel& served, const std::string& field) {
  const uint64_t bytes_per_token = k_normalisation_shrink * served.longest_token_bytes;
  if (bytes_per_token > 0 && text.size() / bytes_per_token > served.context_tokens) {
    return fail(ErrorCode::invalid_argument,
                "the prompt has at least " + std::to_string(text.size() / bytes_per_token) +
                    " tokens, the context holds " + std::to_string(served.context_tokens) +
                    " for prompt and output together",
                field);
  }
  return served.text.tokenizer->encode(text, {.add_special = add_special, .parse_special = true});
}

std::string decode(std::span<const int32_t> ids, const ServedModel& served) {
  return served.text.tokenizer->decode(ids);
}

Result<void> check_token_ids(std::span<const int32_t> ids, const std::string& field,
                             const ServedModel& served) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (served.text.tokenizer->contains(ids[i])) continue;
    return unknown_token(field + "[" + std::to_string(i) + "]", ids[i], served);
  }
  return {};
}

Error unknown_token(const std::string& field, int32_t id, const ServedModel& served) {
  return fail(ErrorCode::invalid_argument,
              field + " has the token id " + std::to_string(id) + ", the vocabulary has " +
                  std::to_string(served.text.tokenizer->size()),
              field);
}

Result<std::vector<int32_t>> chat_prompt_tokens(const ParsedRequest& chat,
                                                const ServedModel& served, UnixTime now) {
  auto text = served.text.chat_template->render(
      chat.messages, chat.tools, chat.add_generation_prompt, chat.template_variables, now);
  if (!text) return text.error();
  return encode(*text, chat.add_special_tokens.value_or(false), served, "messages");
}

}  // namespace outrider::gateway
