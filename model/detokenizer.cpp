#include "model/detokenizer.hpp"

#include <utility>

#include "base/utf8.hpp"

namespace outrider::model {

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

std::string Detokenizer::push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
  held_ += tokenizer_->token_bytes(id);
  const size_t whole = held_.size() - utf8_incomplete_suffix(held_);
  std::string out = utf8_replace_invalid(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return out;
}

std::string Detokenizer::finish() {
  return utf8_replace_invalid(std::exchange(held_, {}));
}

}  // namespace outrider::model
