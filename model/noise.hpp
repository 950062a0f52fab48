#pragma once

#include <array>
#include <cstdint>

#include "base/fmath.hpp"
#include "base/philox.hpp"

/// Gumbel noise of the sampler: a pure function of (seed, absolute position, token id). One Philox
/// block serves four neighbouring ids.
namespace outrider::model {

inline std::array<uint32_t, 4> noise_counter(uint64_t position, uint32_t group) {
  return {group, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
          0x4F757472u /* "Outr": keeps other users of the seed apart */};
}
inline std::array<uint32_t, 2> noise_key(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

/// The four 32-bit draws of ids 4 * group … 4 * group + 3.
inline std::array<uint32_t, 4> noise_bits(uint64_t seed, uint64_t position, uint32_t group) {
  return philox4x32(noise_counter(position, group), noise_key(seed));
}

/// -log(-log(u)) with u = (bits + 1/2) / 2^32, close to 1 through its complement for accuracy.
inline float gumbel(uint32_t bits) {
  if (bits < 0x80000000u) {
    const float u = (static_cast<float>(bits >> 8) + 0.5f) * 0x1p-24f;
    return -log_f32(-log_f32(u));
  }
  // u = 1 - w: -log(1 - w) = w + w^2/2 + …; w keeps all 31 bits where it is small.
  const float w = (static_cast<float>(~bits) + 0.5f) * 0x1p-32f;
  float exponential;
  if (w < 0x1p-8f) {
    exponential = w * (1.0f + w * (0.5f + w * (1.0f / 3.0f + w * 0.25f)));
  } else {
    exponential = -log_f32(1.0f - w);
  }
  return -log_f32(exponential);
}

/// At least gumbel(bits), much cheaper: -log(-log(u)) <= -log(1 - u), bounded by a power of two.
inline float gumbel_bound(uint32_t bits) {
  const uint32_t complement = ~bits;
  const int leading_zeros = complement == 0 ? 32 : __builtin_clz(complement);
  return static_cast<float>(leading_zeros + 1) * 0.6931472f + 0.001f;
}

/// At least gumbel_bound of any draw.
inline constexpr float k_gumbel_max = 33.0f * 0.6931472f + 0.001f;

}  // namespace outrider::model
