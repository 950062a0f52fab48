#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/request.hpp"

namespace outrider::exactness {

/// What one choice got, in full.
struct Outcome {
  std::vector<TokenOut> tokens;
  std::vector<TokenOut> prompt_tokens;
  Finish finish;
};

/// Differences found, and how much was compared.
struct Tally {
  uint64_t requests = 0;
  uint64_t tokens = 0;
  uint64_t logprobs = 0;  ///< Float values.
  uint64_t differing_tokens = 0;
  uint64_t differing_logprobs = 0;  ///< In any bit, or in rank or alternatives.
  uint64_t differing_ends = 0;

  bool exact() const { return differing_tokens + differing_logprobs + differing_ends == 0; }
  Tally& operator+=(const Tally& other);
};

/// Compares bit for bit. Tokens behind the first difference count as compared, not as differing:
/// they are its consequence.
Tally compare(const Outcome& expected, const Outcome& actual);

/// The figures in one line.
std::string to_string(const Tally& tally);

}  // namespace outrider::exactness
