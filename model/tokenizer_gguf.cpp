#include <algorithm>

#include "model/gguf.hpp"
#include "model/tokenizer.hpp"

namespace outrider::model {
namespace {

using Type = TokenizerData::Type;

Result<int32_t> optional_id(const GgufFile& file, std::string_view key) {
  const auto found = file.find_u64(key);
  if (!found) return found.error();
  if (!found->has_value()) return -1;
  if (**found > INT32_MAX) {
    return fail(ErrorCode::corrupt, std::string(key) + ": id out of range", std::string(key));
  }
  return static_cast<int32_t>(**found);
}

Result<bool> optional_flag(const GgufFile& file, std::string_view key) {
  const auto found = file.find_bool(key);
  if (!found) return found.error();
  return found->value_or(false);
}

Result<void> read_tokens(const GgufFile& file, TokenizerData& data) {
  const auto tokens = file.get_strings("tokenizer.ggml.tokens");
  if (!tokens) return tokens.error();
  data.tokens.assign(tokens->begin(), tokens->end());
  const auto types = file.get_i32_array("tokenizer.ggml.token_type");
  if (!types) return types.error();
  for (const int32_t type : *types) {
    const bool known =
        type >= static_cast<int32_t>(Type::normal) && type <= static_cast<int32_t>(Type::byte);
    data.types.push_back(known ? static_cast<Type>(type) : Type::normal);
  }
  const auto merges = file.get_strings("tokenizer.ggml.merges");
  if (!merges) return merges.error();
  data.merges.assign(merges->begin(), merges->end());
  return {};
}

/// Chat models end a turn with one of these; a file's single eos id is only one of them.
void add_end_of_turn_tokens(TokenizerData& data) {
  static constexpr std::string_view k_names[] = {"<|im_end|>",      "<|endoftext|>", "<|eot_id|>",
                                                 "<|end_of_text|>", "<|eom_id|>",    "</s>"};
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    if (data.types[id] != Type::control) continue;
    if (std::find(std::begin(k_names), std::end(k_names), data.tokens[id]) != std::end(k_names)) {
      data.end_of_generation.push_back(static_cast<int32_t>(id));
    }
  }
}

}  // namespace

Result<TokenizerData> tokenizer_data_from_gguf(const GgufFile& file) {
  const auto kind = file.get_string("tokenizer.ggml.model");
  if (!kind) return kind.error();
  if (*kind != "gpt2") {
    return fail(ErrorCode::unsupported,
                "tokenizer.ggml.model: \"" + std::string(*kind) +
                    "\" is not supported; only byte-level BPE (\"gpt2\") is",
                "tokenizer.ggml.model");
  }
  TokenizerData data;
  const auto pre = file.find_string("tokenizer.ggml.pre");
  if (!pre) return pre.error();
  data.pre = std::string(pre->value_or("default"));
  OUTRIDER_TRY(read_tokens(file, data));
  if (data.types.size() != data.tokens.size()) {
    return fail(ErrorCode::corrupt,
                "tokenizer.ggml.token_type: " + std::to_string(data.types.size()) + " types for " +
                    std::to_string(data.tokens.size()) + " tokens",
                "tokenizer.ggml.token_type");
  }
  const auto bos = optional_id(file, "tokenizer.ggml.bos_token_id");
  if (!bos) return bos.error();
  const auto eos = optional_id(file, "tokenizer.ggml.eos_token_id");
  if (!eos) return eos.error();
  const auto eot = optional_id(file, "tokenizer.ggml.eot_token_id");
  if (!eot) return eot.error();
  const auto add_bos = optional_flag(file, "tokenizer.ggml.add_bos_token");
  if (!add_bos) return add_bos.error();
  const auto add_eos = optional_flag(file, "tokenizer.ggml.add_eos_token");
  if (!add_eos) return add_eos.error();
  data.bos = *bos;
  data.eos = *eos;
  data.add_bos = *add_bos;
  data.add_eos = *add_eos;
  if (*eot >= 0) data.end_of_generation.push_back(*eot);
  add_end_of_turn_tokens(data);
  return data;
}

}  // namespace outrider::model
