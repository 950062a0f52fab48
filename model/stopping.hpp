#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/request.hpp"
#include "model/detokenizer.hpp"

namespace outrider::model {

/// Looks for stop strings in text that comes in pieces, and gives out only what can no longer
/// become part of one. The match that ends first wins; of those the one that starts first, then
/// the lowest index. Linear time (Knuth, Morris, Pratt 1977). Copyable.
class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stop_strings, bool include_match);

  /// Text that is certain now. After a match: everything up to it (with it, if `include_match`).
  /// Unless `may_stop`, a stop string that ends in this text is ordinary text.
  std::string push(std::string_view text, bool may_stop = true);
  /// The held-back rest; the text has ended without a match.
  std::string finish();
  /// Index of the stop string that matched.
  std::optional<uint32_t> match() const { return match_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> fallback;  // longest proper border of each prefix
    uint32_t matched = 0;            // bytes of `text` that the input now ends with
  };
  bool advance(char c, bool may_stop);  // true if a pattern just completed

  std::vector<Pattern> patterns_;
  bool include_match_;
  std::string held_;
  std::optional<uint32_t> match_;
};

/// Output ids of one choice to text, with stop strings obeyed. The engine decides with it that a
/// choice has ended and the gateway shows text with it, so both agree. Copyable.
class TextStream {
 public:
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, const StopParams& stop);

  /// Text that became certain. Nothing after a stop string matched. One that is complete before
  /// `min_tokens` tokens does not count.
  std::string push(int32_t id);
  /// The same for tokens in a row. With `finish` all that is left too, but not the token that ended
  /// the choice, unless the stop is to be included.
  std::string push(std::span<const TokenOut> tokens, const std::optional<Finish>& finish);
  /// The end: all held-back text, unless a stop string matched.
  std::string finish();
  std::optional<uint32_t> stop_string() const { return matcher_.match(); }

 private:
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  uint32_t min_tokens_;
  bool shows_stop_;
  uint32_t tokens_ = 0;
};

}  // namespace outrider::model
