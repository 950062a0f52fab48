#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/kv_kind.hpp"

/// How cached keys and values are coded: the layout of one tile, written and read number by number.
/// Back ends read tiles their own way, to the same floats.
///
/// A tile is head_dim / 16 units (rounded up; the rest is zero), then the scales if the kind has
/// them. A unit holds 16 numbers k of 16 lanes. Of keys k is an element of the head and the lane a
/// position; of values k is a position and the lane an element.
///   fp32, fp16, bf16, fp8:  [k][16 lanes] numbers
///   q8_0:                   [k][16 lanes] signed bytes
///   q4_0, nf4:              [2][16 lanes] words of 32 bits; k = 8 j + i is nibble i of word j
///   q3:                     [3][16 lanes] words of 16 bits; k = 5 j + i is at bit 3 i of word j,
///                           and bit j of k = 15 is the top bit of word j
///   scales:                 [elements / 32, rounded up][16 positions] halves
/// The number is code * scale (q8_0) or codebook[code] * scale, rounded once to float.
namespace outrider::kernels {

/// The 16 numbers that codes of q4_0, nf4 and q3 stand for; q3 has its eight twice.
/// nf4: the quantiles of a normal distribution of QLoRA (Dettmers et al. 2023, appendix E). q3:
/// testdata/make_kv_codebook.py.
const std::array<float, 16>& kv_codebook(KvKind kind);

/// Codes the head's numbers x [head_dim] of one position (0 … 15) into a tile. Scales are chosen
/// per 32 numbers by their largest magnitude; numbers too large for a scale in half precision, or
/// that are none, make all 32 NaN. fp8 ends at ±448.
void kv_store(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, const float* x,
              std::byte* tile);

/// Element d of one position.
float kv_read(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, size_t d,
              const std::byte* tile);

}  // namespace outrider::kernels
