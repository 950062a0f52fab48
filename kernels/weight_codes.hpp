#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.hpp"

namespace outrider::kernels {

/// One block of a quantised type taken apart: weight i is code[i] * scale[g] + offset[g] with
/// g = i / group. The product is exact in float for every format (at most 24 bits), so the value
/// is rounded once, whether by FMA or not.
struct BlockCodes {
  int8_t code[256];
  float scale[16];
  float offset[16];
};

/// How a quantised type splits. Codes stand in [code_min, code_min + 2^bits).
struct CodeInfo {
  uint32_t group = 0;  ///< weights that share scale and offset; 0 for the float types
  uint32_t code_bits = 0;
  int32_t code_min = 0;
  bool has_offset = false;
  bool half_scale = false;  ///< scale and offset are half-precision values
};

/// Group 0 for F32, F16 and BF16. The type is known.
CodeInfo code_info(WeightType type);

/// Takes apart one block of a quantised type.
void split_block(WeightType type, const std::byte* block, BlockCodes& out);

}  // namespace outrider::kernels
