#include "tests/exactness/outcome.hpp"

#include <algorithm>
#include <bit>

namespace outrider::exactness {
namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void compare_logprob(const TokenLogprob& a, const TokenLogprob& b, Tally& tally) {
  tally.logprobs += 1 + a.top.size();
  tally.differing_logprobs += same_bits(a.logprob, b.logprob) && a.rank == b.rank ? 0 : 1;
  if (a.top.size() != b.top.size()) {
    ++tally.differing_logprobs;
    return;
  }
  for (size_t i = 0; i < a.top.size(); ++i) {
    const bool same =
        a.top[i].first == b.top[i].first && same_bits(a.top[i].second, b.top[i].second);
    tally.differing_logprobs += same ? 0 : 1;
  }
}

/// False at the first token that differs.
bool compare_tokens(const std::vector<TokenOut>& expected, const std::vector<TokenOut>& actual,
                    Tally& tally) {
  tally.tokens += expected.size();
  for (size_t i = 0; i < std::max(expected.size(), actual.size()); ++i) {
    const bool both = i < expected.size() && i < actual.size();
    if (!both || expected[i].id != actual[i].id ||
        expected[i].logprob.has_value() != actual[i].logprob.has_value()) {
      ++tally.differing_tokens;
      return false;
    }
    if (expected[i].logprob) compare_logprob(*expected[i].logprob, *actual[i].logprob, tally);
  }
  return true;
}

}  // namespace

Tally& Tally::operator+=(const Tally& other) {
  requests += other.requests;
  tokens += other.tokens;
  logprobs += other.logprobs;
  differing_tokens += other.differing_tokens;
  differing_logprobs += other.differing_logprobs;
  differing_ends += other.differing_ends;
  return *this;
}

Tally compare(const Outcome& expected, const Outcome& actual) {
  Tally tally;
  compare_tokens(expected.prompt_tokens, actual.prompt_tokens, tally);
  const bool same = compare_tokens(expected.tokens, actual.tokens, tally);
  if (same && !(expected.finish == actual.finish)) ++tally.differing_ends;
  return tally;
}

std::string to_string(const Tally& tally) {
  return std::to_string(tally.requests) + " requests, " + std::to_string(tally.tokens) +
         " tokens, " + std::to_string(tally.logprobs) +
         " logprobs compared: " + std::to_string(tally.differing_tokens) + " differing tokens, " +
         std::to_string(tally.differing_logprobs) + " differing logprobs, " +
         std::to_string(tally.differing_ends) + " differing ends";
}

}  // namespace outrider::exactness
