#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.hpp"

namespace outrider::kernels {

/// One block of a quantised type taken apart. Weight i, in group g = i / group, is
///   code[i] * (d * scale[g]) + m * offset[g].
/// Both products are exact in float for every format (at most 24 bits), so the value is rounded
/// once, whether by FMA or not. Types without scales in groups have scale[0] = offset[0] = 1.
struct BlockCodes {
  int8_t code[256];
  int8_t scale[16];
  uint8_t offset[16];
  float d = 0;  ///< a half-precision number, as is m
  float m = 0;
};

/// Takes apart one block of a type.
using BlockSplitter = void (*)(const std::byte* block, BlockCodes& out);

/// Null for F32, F16 and BF16. The type is known.
BlockSplitter block_splitter(WeightType type);

}  // namespace outrider::kernels
