#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "gateway/prompt.hpp"

/// The few words that the gateway needs of the tokenizer.
namespace outrider::gateway {

/// Special tokens written in the text are parsed; `add_special` adds the model's own (BOS, …).
/// A text that cannot fit the context whatever its tokens are is refused before it costs the KJ
/// thread the time to tokenize it; the error says both numbers and names `field`.
Result<std::vector<int32_t>> encode(std::string_view text, bool add_special,
                                    const ServedModel& served, const std::string& field);
/// Bytes of the longest token.
uint32_t longest_token_bytes(const model::Tokenizer& tokenizer);
/// Text of the ids, special ones included, with what is no UTF-8 replaced.
std::string decode(std::span<const int32_t> ids, const ServedModel& served);
/// An error for the first id that the vocabulary does not have; `field` gets its index.
Result<void> check_token_ids(std::span<const int32_t> ids, const std::string& field,
                             const ServedModel& served);
Error unknown_token(const std::string& field, int32_t id, const ServedModel& served);

}  // namespace outrider::gateway
