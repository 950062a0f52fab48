#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/request.hpp"
#include "gateway/json_body.hpp"
#include "model/tokenizer.hpp"

namespace outrider::gateway {

/// A token as a JSON string: its bytes, with what is no UTF-8 by itself replaced.
std::string token_text(const model::Tokenizer& tokenizer, int32_t id);

/// Chat: {"content":[{"token","logprob","bytes","top_logprobs"}…]}
Json chat_logprobs(const model::Tokenizer& tokenizer, std::span<const TokenOut> tokens);

/// Completions: {"tokens","token_logprobs","top_logprobs","text_offset"}, the last as given: how
/// many characters of text come before each token. [tokens]
Json completion_logprobs(const model::Tokenizer& tokenizer, std::span<const TokenOut> tokens,
                         std::span<const uint64_t> text_offsets);
uint64_t count_characters(std::string_view text);

/// vLLM's prompt_logprobs: [null, {"id":{"logprob","rank","decoded_token"}}…]
Json prompt_logprobs_json(const model::Tokenizer& tokenizer, std::span<const TokenOut> tokens);

Json token_ids_json(std::span<const TokenOut> tokens);

/// Arrays of an object, as text that grows. Logprobs of a long answer are written as they come: as
/// one tree at the end they would keep the KJ thread from everybody for half a second.
class GrowingArrays {
 public:
  /// An object whose members are arrays; each is put behind the one of its name.
  void append(const Json& arrays);
  /// "name":[…],"name":[…]
  std::string members() const;

 private:
  std::vector<std::pair<std::string, std::string>> texts_;  ///< In the order of the first object.
};

}  // namespace outrider::gateway
