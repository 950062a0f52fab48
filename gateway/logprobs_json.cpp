#include "gateway/logprobs_json.hpp"

#include <algorithm>
#include <cmath>

#include "base/utf8.hpp"

namespace outrider::gateway {
namespace {

/// JSON has no infinity; vLLM writes -9999 for a token that a mask made impossible.
double json_logprob(float logprob) {
  return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0;
}

Json bytes_json(std::string_view bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<uint8_t>(c));
  return out;
}

/// A token as completions name it. One that is no text by itself is spelled by its bytes, as OpenAI
/// did: these names are keys of `top_logprobs`, so they must not meet.
std::string token_name(const model::Tokenizer& tokenizer, int32_t id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (utf8_valid(bytes)) return std::string(bytes);
  std::string name = "bytes:";
  for (const char c : bytes) {
    constexpr char k_digits[] = "0123456789abcdef";
    const auto byte = static_cast<uint8_t>(c);
    name += {'\\', 'x', k_digits[byte >> 4], k_digits[byte & 15]};
  }
  return name;
}

Json chat_entry(const model::Tokenizer& tokenizer, int32_t id, float logprob) {
  return {{"token", token_text(tokenizer, id)},
          {"logprob", json_logprob(logprob)},
          {"bytes", bytes_json(tokenizer.token_bytes(id))}};
}

}  // namespace

uint64_t count_characters(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0u) != 0x80u; }));
}

std::string token_text(const model::Tokenizer& tokenizer, int32_t id) {
  return utf8_replace_invalid(tokenizer.token_bytes(id));
}

Json chat_logprobs(const model::Tokenizer& tokenizer, std::span<const TokenOut> tokens) {
  Json content = Json::array();
  for (const auto& token : tokens) {
    if (!token.logprob) continue;
    Json entry = chat_entry(tokenizer, token.id, token.logprob->logprob);
    Json top = Json::array();
    for (const auto& [id, logprob] : token.logprob->top) {
      top.push_back(chat_entry(tokenizer, id, logprob));
    }
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

Json completion_logprobs(const model::Tokenizer& tokenizer, std::span<const TokenOut> tokens,
                         std::span<const uint64_t> text_offsets) {
  Json names = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  for (const auto& token : tokens) {
    const std::string name = token_name(tokenizer, token.id);
    if (token.logprob) {
      Json top = Json::object();
      for (const auto& [id, logprob] : token.logprob->top) {
        top[token_name(tokenizer, id)] = json_logprob(logprob);
      }
      top[name] = json_logprob(token.logprob->logprob);
      logprobs.push_back(json_logprob(token.logprob->logprob));
      tops.push_back(std::move(top));
    } else {  // the first token of a prompt
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
    }
    names.push_back(name);
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", Json(text_offsets)}};
}

Json prompt_logprobs_json(const model::Tokenizer& tokenizer, std::span<const TokenOut> tokens) {
  Json out = Json::array();
  for (const auto& token : tokens) {
    if (!token.logprob) {
      out.push_back(nullptr);
      continue;
    }
    Json entry = Json::object();
    uint32_t rank = 1;
    const auto add = [&](int32_t id, float logprob, uint32_t token_rank) {
      entry[std::to_string(id)] = {{"logprob", json_logprob(logprob)},
                                   {"rank", token_rank},
                                   {"decoded_token", token_text(tokenizer, id)}};
    };
    for (const auto& [id, logprob] : token.logprob->top) add(id, logprob, rank++);
    add(token.id, token.logprob->logprob, token.logprob->rank);
    out.push_back(std::move(entry));
  }
  return out;
}

void GrowingArrays::append(const Json& arrays) {
  for (const auto& [name, array] : arrays.items()) {
    auto found = std::ranges::find(texts_, name, [](const auto& text) { return text.first; });
    if (found == texts_.end()) found = texts_.insert(found, {name, ""});
    if (array.empty()) continue;
    if (!found->second.empty()) found->second += ',';
    const std::string text = to_text(array);
    found->second.append(text, 1, text.size() - 2);
  }
}

std::string GrowingArrays::members() const {
  std::string out;
  for (const auto& [name, text] : texts_) {
    if (!out.empty()) out += ',';
    out += '"' + name + "\":[" + text + ']';
  }
  return out;
}

Json token_ids_json(std::span<const TokenOut> tokens) {
  Json out = Json::array();
  for (const auto& token : tokens) out.push_back(token.id);
  return out;
}

}  // namespace outrider::gateway
