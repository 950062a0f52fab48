#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/request.hpp"
#include "gateway/prompt.hpp"
#include "model/stopping.hpp"

namespace outrider::gateway {

/// Output tokens of one choice to text that is certain: never half a character, never a part of
/// what may yet become a stop string, never the token that stopped it (unless that was asked for).
class ChoiceText {
 public:
  ChoiceText(const ServedModel& served, const StopParams& stop)
      : stream_(served.text.tokenizer, stop), shows_stop_(stop.include_stop_str_in_output) {}

  /// Text that became certain by these tokens; with `finish`, all that is left.
  std::string push(std::span<const TokenOut> tokens, const std::optional<Finish>& finish);

 private:
  model::TextStream stream_;
  bool shows_stop_;
};

}  // namespace outrider::gateway
