#include "model/stopping.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace outrider::model {
namespace {

std::vector<uint32_t> borders(std::string_view text) {
  std::vector<uint32_t> fallback(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) {
    uint32_t length = fallback[i - 1];
    while (length > 0 && text[i] != text[length]) length = fallback[length - 1];
    fallback[i] = text[i] == text[length] ? length + 1 : 0;
  }
  return fallback;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stop_strings, bool include_match)
    : include_match_(include_match) {
  for (std::string& text : stop_strings) {
    OUTRIDER_CHECK(!text.empty());
    std::vector<uint32_t> fallback = borders(text);
    patterns_.push_back({std::move(text), std::move(fallback)});
  }
}

bool StopMatcher::advance(char c, bool may_stop) {
  size_t longest = 0;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    Pattern& pattern = patterns_[i];
    while (pattern.matched > 0 && pattern.text[pattern.matched] != c) {
      pattern.matched = pattern.fallback[pattern.matched - 1];
    }
    if (pattern.text[pattern.matched] == c) ++pattern.matched;
    if (pattern.matched < pattern.text.size()) continue;
    pattern.matched = pattern.fallback.back();
    // Of two that end here the longer one started first.
    if (may_stop && pattern.text.size() > longest) {
      longest = pattern.text.size();
      match_ = static_cast<uint32_t>(i);
    }
  }
  return longest > 0;
}

std::string StopMatcher::push(std::string_view text, bool may_stop) {
  if (match_) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    held_ += text[i];
    if (!advance(text[i], may_stop)) continue;
    const size_t cut = include_match_ ? 0 : patterns_[*match_].text.size();
    held_.resize(held_.size() - cut);
    return std::exchange(held_, {});
  }
  size_t open = 0;
  for (const Pattern& pattern : patterns_) open = std::max<size_t>(open, pattern.matched);
  // Stop strings are valid UTF-8, so the cut is never inside a character.
  const size_t certain = held_.size() - open;
  std::string out = held_.substr(0, certain);
  held_.erase(0, certain);
  return out;
}

std::string StopMatcher::finish() {
  if (match_) return {};
  return std::exchange(held_, {});
}

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, const StopParams& stop)
    : detokenizer_(std::move(tokenizer), stop.skip_special_tokens),
      matcher_(stop.stop_strings, stop.include_stop_str_in_output),
      min_tokens_(stop.min_tokens),
      shows_stop_(stop.include_stop_str_in_output) {}

std::string TextStream::push(int32_t id) {
  ++tokens_;
  return matcher_.push(detokenizer_.push(id), tokens_ >= min_tokens_);
}

std::string TextStream::push(std::span<const TokenOut> tokens,
                             const std::optional<Finish>& finish) {
  const bool hides_last = finish && finish->stop_token >= 0 && !shows_stop_ && !tokens.empty() &&
                          tokens.back().id == finish->stop_token;
  std::string text;
  for (const TokenOut& token : tokens.first(tokens.size() - (hides_last ? 1 : 0))) {
    text += push(token.id);
  }
  if (finish) text += this->finish();
  return text;
}

std::string TextStream::finish() {
  std::string out = matcher_.push(detokenizer_.finish(), /*may_stop=*/false);
  return out + matcher_.finish();
}

}  // namespace outrider::model
