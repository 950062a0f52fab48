#include "tests/sim/cluster/answer.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "actors/fake_token.test.hpp"
#include "base/hash.hpp"

namespace outrider::sim::cluster {
namespace {

constexpr int32_t k_letters = 26;
constexpr uint32_t k_ranks = 50'000;

float small(uint64_t hash) {
  return -static_cast<float>(hash % (1u << 20)) / (1u << 16);
}

TokenLogprob logprob_of(uint64_t seed, uint32_t index, int32_t id, int32_t tops) {
  const std::array<uint64_t, 2> what = {index, static_cast<uint64_t>(id)};
  const uint64_t hash = hash64(std::as_bytes(std::span(what)), seed);
  TokenLogprob out{small(hash), static_cast<uint32_t>(1 + hash % k_ranks), {}};
  for (int32_t i = 0; i < tops; ++i) {
    const uint64_t other = hash64(std::as_bytes(std::span(&i, 1)), hash);
    out.top.emplace_back(static_cast<int32_t>(other % k_ranks), small(other >> 32));
  }
  return out;
}

}  // namespace

Answer::Answer(const GenerationRequest& request, uint32_t choice, uint64_t twist)
    : choice_(choice), twist_(twist) {
  const StopParams& stop = request.stop;
  if (!stop.stop_strings.empty()) {
    matcher_.emplace(stop.stop_strings, stop.include_stop_str_in_output);
  }
  if (stop.max_tokens == 0) finish_ = Finish{.reason = FinishReason::length};
}

int32_t Answer::draw(const GenerationRequest& request, uint32_t generation) const {
  const int32_t id = actors::fake_token(request, choice_, length_) ^ static_cast<int32_t>(twist_);
  if (!verifies_by_rejection(request)) return id;
  return id | static_cast<int32_t>(generation << k_id_bits);
}

TokenOut Answer::told(const GenerationRequest& request, int32_t id) const {
  TokenOut out{id, std::nullopt};
  if (request.logprobs < 0) return out;
  out.logprob = logprob_of(request.sampling.seed + choice_, length_, id, request.logprobs);
  return out;
}

/// As the real engine: a stop id first, then a stop string, then the length.
void Answer::commit(const GenerationRequest& request, int32_t id) {
  ++length_;
  const StopParams& stop = request.stop;
  if (std::ranges::find(stop.stop_token_ids, id) != stop.stop_token_ids.end()) {
    finish_ = Finish{.reason = FinishReason::stop, .stop_token = id};
    return;
  }
  if (matcher_) {
    matcher_->push(text_of(id));
    if (const auto match = matcher_->match()) {
      finish_ = Finish{.reason = FinishReason::stop, .stop_string = static_cast<int32_t>(*match)};
      return;
    }
  }
  if (length_ >= stop.max_tokens) finish_ = Finish{.reason = FinishReason::length};
}

std::string Answer::text_of(int32_t id) {
  std::string text;
  for (int32_t left = plain(id); text.size() < 3; left /= k_letters) {
    text += static_cast<char>('a' + left % k_letters);
  }
  return text;
}

TokenOut Answer::prompt_token(const GenerationRequest& request, uint32_t index, uint64_t twist) {
  TokenOut out{request.prompt[index], std::nullopt};
  if (index > 0) out.logprob = logprob_of(twist, index, out.id, request.prompt_logprobs);
  return out;
}

}  // namespace outrider::sim::cluster
