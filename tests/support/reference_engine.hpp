#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/loaded_model.hpp"

namespace outrider::testing_support {

/// Logits [vocab] that follow one token.
using Logits = std::vector<float>;

/// The slow, plain twin of the engine: one sequence, contiguous float32 keys and values, attention
/// as written in the paper, arithmetic of the judge. What the real engine is compared with.
class ReferenceEngine {
 public:
  /// `model` must have been loaded for kernels::make_ref_ops().
  ReferenceEngine(std::shared_ptr<const model::LoadedModel> model, uint32_t context_tokens);

  uint32_t length() const { return length_; }
  /// Starts over with a prompt; the logits after its last token.
  Logits prefill(std::span<const int32_t> prompt);
  /// Adds one token.
  Logits decode(int32_t id);
  /// Adds tokens, e.g. a draft to verify; the logits after each.
  std::vector<Logits> update(std::span<const int32_t> ids);
  /// Forgets the tokens from `length` on.
  void crop(uint32_t length);

 private:
  void attention(uint32_t layer, const float* q, size_t rows, float* out) const;

  std::shared_ptr<const model::LoadedModel> model_;
  uint32_t context_tokens_;
  std::unique_ptr<kernels::RopeTable> rope_;
  uint32_t length_ = 0;
  std::vector<std::vector<float>> keys_;    ///< per layer [length, kv_heads * head_dim]
  std::vector<std::vector<float>> values_;  ///< likewise
};

/// Index of the highest, the lowest of a tie.
int32_t argmax(const Logits& logits);

/// `count` tokens, one at a time.
std::vector<int32_t> greedy(ReferenceEngine& engine, std::span<const int32_t> prompt,
                            uint32_t count);

/// Proposes tokens to follow prompt + output so far; any number, right or wrong.
using Drafter = std::function<std::vector<int32_t>(std::span<const int32_t> output)>;

/// The same tokens as `greedy`, by drafting, verifying in one update and cropping what was wrong.
std::vector<int32_t> greedy_with_drafts(ReferenceEngine& engine, std::span<const int32_t> prompt,
                                        uint32_t count, const Drafter& draft);

}  // namespace outrider::testing_support
