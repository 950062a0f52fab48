#pragma once

#include <cstdint>

namespace outrider::kernels {

/// Encoding of a weight tensor as it stands in a GGUF file; values are GGUF's own.
enum class WeightType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
};

}  // namespace outrider::kernels
