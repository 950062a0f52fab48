#pragma once

#include <bit>
#include <cstdint>

namespace outrider {

/// IEEE binary16 to float, exact; every bit pattern is accepted.
inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t rest = uint32_t{bits & 0x7FFFu} << 13;
  // Scaling by 2^112 moves the exponent bias from 15 to 127 and normalises denormals.
  const float scaled = std::bit_cast<float>(rest) * 0x1p112f;
  uint32_t out = std::bit_cast<uint32_t>(scaled);
  if ((bits & 0x7C00u) == 0x7C00u) out |= 0x7F800000u | rest;
  return std::bit_cast<float>(out | sign);
}

/// Float to IEEE binary16, round to nearest even; overflow becomes infinity, NaN stays NaN.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 lets the float adder round the denormal to 2^-24 steps.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline float bfloat16_to_float(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace outrider
