#include "schema/wire_types.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/philox.hpp"

namespace outrider::schema {
namespace {

TokenOut token_with(int32_t id, float logprob, std::vector<std::pair<int32_t, float>> top) {
  return {id, TokenLogprob{logprob, 3, std::move(top)}};
}

GenerationRequest unusual_request() {
  GenerationRequest request;
  request.id = "chatcmpl-1";
  request.sampling = {0.7f, 40, 0.9f, 0.05f, 1.1f, -0.5f, 0.25f, {{3, -100.0f}, {9, 1.5f}}, 77};
  request.stop = {99, 3, true, {1, 2}, {"\n\n", "END"}, true, false};
  request.choices = 3;
  request.logprobs = 5;
  request.prompt_logprobs = 0;
  request.priority = -2;
  request.deadline_ms = 1500;
  request.tenant = "team a";
  request.cache_salt = "salt";
  request.kv = {.stop_rule = KvStopRule::wait_complete, .pin = true, .ttl_s = 60};
  request.speculation = {false, 7, SpeculationMethod::reject_sampling};
  request.continues = true;
  return request;
}

TEST(WireTypes, ARequestTravelsWithEveryFieldButItsTokens) {
  const GenerationRequest request = unusual_request();
  EXPECT_EQ(from_wire(to_wire(request)), request);
  EXPECT_EQ(from_wire(to_wire(GenerationRequest{})), GenerationRequest{});
}

TEST(WireTypes, ADraftsOwnRequestDoesNotTravelAsOne) {
  GenerationRequest request;
  request.draft = DraftKind::drawn;
  EXPECT_EQ(from_wire(to_wire(request)).draft, DraftKind::none);
}

TEST(WireTypes, OfAMethodThatItDoesNotKnowAnEngineMakesTheDefault) {
  WireRequest wire = to_wire(unusual_request());
  for (const int method : {0, 3, 255}) {
    wire.draft_method = static_cast<uint8_t>(method);
    EXPECT_EQ(from_wire(wire).speculation.method, SpeculationMethod::exact) << method;
  }
}

TEST(WireTypes, FloatsKeepTheirBitsWhateverTheyAre) {
  for (const float value :
       {std::numeric_limits<float>::infinity(), -0.0f, 1e-42f, std::bit_cast<float>(0x7FC01234u)}) {
    GenerationRequest request;
    request.sampling.temperature = value;
    const float copy = from_wire(to_wire(request)).sampling.temperature;
    EXPECT_EQ(std::bit_cast<uint32_t>(copy), std::bit_cast<uint32_t>(value));
  }
}

TEST(WireTypes, TokensTravelWithTheirLogprobBits) {
  const std::vector<TokenOut> tokens = {
      {5, std::nullopt},
      token_with(6, -0.25f, {{6, -0.25f}, {7, -std::numeric_limits<float>::infinity()}}),
      token_with(-1, -0.0f, {})};
  const auto copy = decode_tokens(encode_tokens(tokens));
  ASSERT_TRUE(copy);
  EXPECT_EQ(*copy, tokens);
  EXPECT_TRUE(std::signbit((*copy)[2].logprob->logprob));
}

TEST(WireTypes, TokensWithoutLogprobsCostFourBytesEach) {
  const std::vector<TokenOut> tokens = {{5, std::nullopt}, {6, std::nullopt}};
  const TokenBatch batch = encode_tokens(tokens);
  EXPECT_TRUE(batch.logprobs.empty());
  EXPECT_EQ(*decode_tokens(batch), tokens);
}

TEST(WireTypes, EncodedBytesIsWhatABatchTakes) {
  const std::vector<TokenOut> tokens = {token_with(6, -1.0f, {{6, -1.0f}, {7, -2.0f}}),
                                        {5, std::nullopt}};
  const TokenBatch batch = encode_tokens(tokens);
  EXPECT_EQ(encoded_bytes(tokens[0]) + encoded_bytes(tokens[1]),
            batch.ids.size() * sizeof(int32_t) + batch.logprobs.size());
}

TEST(WireTypes, ACutOrPaddedTokenBatchIsCorrupt) {
  const std::vector<TokenOut> tokens = {token_with(6, -1.0f, {{6, -1.0f}}),
                                        token_with(7, -2.0f, {})};
  const TokenBatch whole = encode_tokens(tokens);
  for (size_t length = 1; length < whole.logprobs.size(); ++length) {
    TokenBatch cut = whole;
    cut.logprobs.resize(length);
    EXPECT_FALSE(decode_tokens(cut)) << length;
  }
  TokenBatch padded = whole;
  padded.logprobs.push_back(0);
  EXPECT_EQ(decode_tokens(padded).error().code, ErrorCode::corrupt);
}

TEST(WireTypes, RandomBytesNeverDecodeOutOfBounds) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    TokenBatch batch;
    batch.ids.assign(random.below(4), 1);
    for (uint32_t i = random.below(64); i > 0; --i) {
      batch.logprobs.push_back(static_cast<uint8_t>(random.below(random.chance(0.5f) ? 2 : 256)));
    }
    const auto tokens = decode_tokens(batch);
    const size_t held = tokens ? tokens->size() : batch.ids.size();
    EXPECT_EQ(held, batch.ids.size()) << "seed " << seed;
  }
}

TEST(WireTypes, RefusalsAndFinishesOfAStrangePeerBecomeFailures) {
  EXPECT_EQ(Refusal::of(fail(ErrorCode::overloaded, "full"), 50).error_code(),
            ErrorCode::overloaded);
  EXPECT_EQ((Refusal{250, "?", "", 0}).error_code(), ErrorCode::internal);
  EXPECT_TRUE(Refusal{}.none());
  const Finish stop{FinishReason::stop, 2, -1};
  EXPECT_EQ(WireFinish::of(stop).finish(), stop);
  EXPECT_EQ((WireFinish{99, -1, -1}).finish().reason, FinishReason::failed);
}

}  // namespace
}  // namespace outrider::schema
