#include "gateway/choice_text.hpp"

namespace outrider::gateway {

std::string ChoiceText::push(std::span<const TokenOut> tokens,
                             const std::optional<Finish>& finish) {
  const bool hides_last = finish && finish->stop_token >= 0 && !shows_stop_ && !tokens.empty() &&
                          tokens.back().id == finish->stop_token;
  if (hides_last) tokens = tokens.first(tokens.size() - 1);
  std::string text;
  for (const auto& token : tokens) text += stream_.push(token.id);
  if (finish) text += stream_.finish();
  return text;
}

}  // namespace outrider::gateway
