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
///   q8_0:                   [4][16 lanes] words of 32 bits; k = 4 j + 2 i + h is byte i of half h
///   of
///                           word j, signed
///   q4_0, nf4:              [2][16 lanes] words of 32 bits; k = 8 j + 2 i + h is nibble i of half
///   h
///                           of word j; q4_0's have a sign
///   q3:                     [16 lanes] words of 32 bits with the low two bits of k = 2 i + h at
///   bit
///                           2 i of half h, then [16 lanes] of 16 with the third at bit i of byte h
///   scales:                 [elements / 32, rounded up][16 positions] halves
/// The number is integer * scale: the integer is the code, or what the codebook has for it. So
/// pairs of 16 bits come out of words by shifts, to be multiplied as integers.
namespace outrider::kernels {

/// The 16 integers that codes of nf4 and q3 stand for, ±127 at most; q3 has its eight twice.
/// nf4: the quantiles of a normal distribution of QLoRA (Dettmers et al. 2023, appendix E). q3:
/// testdata/make_kv_codebook.py. Both times 127, to the nearest.
const std::array<int8_t, 16>& kv_codebook(KvKind kind);

/// Codes the head's numbers x [head_dim] of one position (0 … 15) into a tile. Scales are chosen
/// per 32 numbers by their largest magnitude; numbers too large for a scale in half precision, or
/// that are none, make all 32 NaN. fp8 ends at ±448.
void kv_store(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, const float* x,
              std::byte* tile);

/// Element d of one position.
float kv_read(KvKind kind, KvTensor tensor, size_t head_dim, size_t position, size_t d,
              const std::byte* tile);

}  // namespace outrider::kernels
