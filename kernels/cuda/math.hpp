#pragma once

#include "kernels/cuda/portable.hpp"

/// Elementary functions of kernels, bit for bit those of base/fmath, kernels/cpu/vector_math and
/// model/noise (kernels/cuda/math.test.cpp, model/device_sampling.test.cpp): change all or none.
namespace outrider::kernels::cuda {

OUTRIDER_KERNEL float power_of_two(int32_t exponent) {
  return float_of(static_cast<uint32_t>(exponent + 127) << 23);
}

/// base/fmath's exp_f32.
OUTRIDER_KERNEL float exponential(float x) {
  const float k_round = 0x1.8p23f;
  const float given = x;
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float t = fused(x, 0x1.715476p+0f, k_round);
  const float n = t - k_round;
  float r = fused(n, -0x1.62e430p-1f, x);
  r = fused(n, 0x1.05c610p-29f, r);
  float q = 0x1.6d113cp-10f;
  q = fused(q, r, 0x1.120ba2p-7f);
  q = fused(q, r, 0x1.55551ap-5f);
  q = fused(q, r, 0x1.5554dcp-3f);
  q = fused(q, r, 0.5f);
  q = fused(q, r, 1.0f);
  q = fused(q, r, 1.0f);
  const auto exponent = static_cast<int32_t>(bits_of(t) - bits_of(k_round));
  const int32_t half = exponent >> 1;
  const float result = q * power_of_two(half) * power_of_two(exponent - half);
  return given != given ? given : result;
}

/// gate / (1 + e^-gate) * up.
OUTRIDER_KERNEL float swiglu(float gate, float up) {
  return gate / (1.0f + exponential(0.0f - gate)) * up;
}

/// 2^x for x <= 0 (kernels/cpu/vector_math); 2^-125 below that; NaN stays NaN.
OUTRIDER_KERNEL float exp2_of_negative(float x) {
  const float k_round = 0x1.8p23f;
  x = x < -125.0f ? -125.0f : x;
  const float t = x + k_round;
  const float r = x - (t - k_round);
  float q = 0x1.5bba14p-10f;
  q = fused(q, r, 0x1.3cea88p-7f);
  q = fused(q, r, 0x1.c6b752p-5f);
  q = fused(q, r, 0x1.ebf9bcp-3f);
  q = fused(q, r, 0x1.62e42ap-1f);
  q = fused(q, r, 1.0f);
  return x != x ? x : float_of(bits_of(q) + (bits_of(t) << 23));
}

/// base/fmath's log_f32.
OUTRIDER_KERNEL float logarithm(float x) {
  if (!(x > 0.0f)) return float_of(x == 0.0f ? 0xFF800000u : 0x7FC00000u);
  if (bits_of(x) == 0x7F800000u) return x;
  int32_t exponent = 0;
  if (x < 0x1p-126f) {
    x *= 0x1p24f;
    exponent = -24;
  }
  const uint32_t bits = bits_of(x) + (0x3F800000u - 0x3F3504F3u);
  exponent += static_cast<int32_t>(bits >> 23) - 127;
  const float m = float_of((bits & 0x007FFFFFu) + 0x3F3504F3u);
  const float f = m - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float series = fused(z, 2.0f / 9.0f, 2.0f / 7.0f);
  series = fused(z, series, 2.0f / 5.0f);
  series = fused(z, series, 2.0f / 3.0f);
  const float h = 0.5f * f * f;
  const auto n = static_cast<float>(exponent);
  const float low = fused(n, -0x1.05c610p-29f, s * fused(z, series, h));
  return fused(n, 0x1.62e430p-1f, f - (h - low));
}

struct Draws {
  uint32_t of[4];
};

/// base/philox.hpp. Source: Salmon, Moraes, Dror, Shaw, SC 2011.
OUTRIDER_KERNEL Draws philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t key_0,
                             uint32_t key_1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product_0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t product_1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(product_1 >> 32) ^ c1 ^ key_0;
    c1 = static_cast<uint32_t>(product_1);
    c2 = static_cast<uint32_t>(product_0 >> 32) ^ c3 ^ key_1;
    c3 = static_cast<uint32_t>(product_0);
    key_0 += 0x9E3779B9u;
    key_1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// model/noise.hpp's noise_bits: the draws of ids 4 * group … 4 * group + 3.
OUTRIDER_KERNEL Draws noise_bits(uint64_t seed, uint64_t position, uint32_t group) {
  return philox(group, static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                0x4F757472u, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

/// model/noise.hpp's gumbel.
OUTRIDER_KERNEL float gumbel(uint32_t bits) {
  if (bits < 0x80000000u) {
    const float u = (static_cast<float>(bits >> 8) + 0.5f) * 0x1p-24f;
    return -logarithm(-logarithm(u));
  }
  const float w = (static_cast<float>(~bits) + 0.5f) * 0x1p-32f;
  const float exponential_draw =
      w < 0x1p-8f ? w * (1.0f + w * (0.5f + w * (1.0f / 3.0f + w * 0.25f))) : -logarithm(1.0f - w);
  return -logarithm(exponential_draw);
}

}  // namespace outrider::kernels::cuda
