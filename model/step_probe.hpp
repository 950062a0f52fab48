#pragma once

#include <cstdint>

#include "base/clock.hpp"

namespace outrider::model {

/// What measuring asks of an idle engine, or of a simulated one.
class StepProbe {
 public:
  virtual ~StepProbe() = default;

  /// Time of one step: `rows` rows (at most batch_tokens) of one sequence behind `context` tokens,
  /// the last `sampled` of them up to their logits. The tokens of context and rows are at most
  /// `probe_tokens_max()`.
  virtual Duration time_step(uint32_t rows, uint32_t context, uint32_t sampled) = 0;
  virtual uint32_t probe_tokens_max() const = 0;
  virtual uint32_t batch_tokens() const = 0;  ///< Rows of one step, at most.
  virtual uint32_t local_window() const = 0;  ///< Tokens that a row attends to; 0: all.
};

}  // namespace outrider::model
