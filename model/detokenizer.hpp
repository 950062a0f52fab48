#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/tokenizer.hpp"

namespace outrider::model {

/// Ids to text, one at a time: gives out whole characters only. Everything given out, in a row, is
/// the bytes of all ids with invalid UTF-8 replaced. Copyable; not thread-safe.
class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);

  std::string push(int32_t id);
  /// What was held back, replaced by U+FFFD if it never became a character.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::string held_;  // the start of a character, at most 3 bytes
};

}  // namespace outrider::model
