#include "base/sampling_ranges.hpp"

#include <algorithm>
#include <sstream>

namespace outrider {

std::string describe(NumberRange range) {
  std::ostringstream out;
  out << "a number " << (range.open_low ? "above " : "from ") << range.low
      << (range.open_low ? ", at most " : " to ") << range.high;
  return out.str();
}

std::string describe(IntegerRange range) {
  const std::string low = std::to_string(range.low);
  if (range.high == INT64_MAX) return "a whole number of at least " + low;
  return "a whole number from " + low + " to " + std::to_string(range.high);
}

std::string describe(SeedRange) {
  return "a whole number from 0 to " + std::to_string(UINT64_MAX);
}

Result<uint64_t> ContextShare::room(const std::string& prompt_field) const {
  if (prompt_tokens < context_tokens) return context_tokens - prompt_tokens;
  return fail(ErrorCode::invalid_argument,
              "the prompt has " + std::to_string(prompt_tokens) + " tokens, the context holds " +
                  std::to_string(context_tokens) + " for prompt and output together",
              prompt_field);
}

Result<void> ContextShare::holds(uint64_t max_tokens) const {
  const uint64_t left = context_tokens - std::min(prompt_tokens, context_tokens);
  if (max_tokens <= left) return {};
  return fail(ErrorCode::invalid_argument,
              "max_tokens is " + std::to_string(max_tokens) + ", but the context of " +
                  std::to_string(context_tokens) + " tokens leaves " + std::to_string(left) +
                  " after the prompt's " + std::to_string(prompt_tokens),
              "max_tokens");
}

}  // namespace outrider
