#include "base/fmath.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace outrider {
namespace {

constexpr float k_infinity = std::numeric_limits<float>::infinity();

/// Adding it rounds to an integer that then stands in the low mantissa bits.
constexpr float k_round_f32 = 0x1.8p23f;
constexpr double k_round_f64 = 0x1.8p52;

float power_of_two(int32_t exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

double power_of_two_f64(int64_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/// Sum of c[i] z^i, highest power first in the array.
template <size_t n>
double polynomial(const double (&c)[n], double z) {
  double p = c[0];
  for (size_t i = 1; i < n; ++i) p = std::fma(p, z, c[i]);
  return p;
}

}  // namespace

// kernels/cpu/vector_math.inl.hpp does the same on 16 lanes: change both or none. Inlined, so that
// each caller below compiles it for its own instruction set; std::fma is exact on all of them.
[[gnu::always_inline]] static inline float exp_one(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float t = std::fma(x, 0x1.715476p+0f, k_round_f32);
  const float n = t - k_round_f32;
  float r = std::fma(n, -0x1.62e430p-1f, x);
  r = std::fma(n, 0x1.05c610p-29f, r);
  float q = 0x1.6d113cp-10f;
  q = std::fma(q, r, 0x1.120ba2p-7f);
  q = std::fma(q, r, 0x1.55551ap-5f);
  q = std::fma(q, r, 0x1.5554dcp-3f);
  q = std::fma(q, r, 0.5f);
  q = std::fma(q, r, 1.0f);
  q = std::fma(q, r, 1.0f);
  // Two factors, so that neither leaves the normal range and a denormal result rounds once.
  const int32_t exponent =
      static_cast<int32_t>(std::bit_cast<uint32_t>(t) - std::bit_cast<uint32_t>(k_round_f32));
  const int32_t half = exponent >> 1;
  const float result = q * power_of_two(half) * power_of_two(exponent - half);
  return x != x ? x : result;
}

float exp_f32(float x) {
  return exp_one(x);
}

namespace {

/// In blocks of fixed size and in local arrays, which compilers turn into vectors.
[[gnu::always_inline]] inline void exp_blocks(const float* x, size_t n, float* out) {
  constexpr size_t k_block = 16;
  float in[k_block] = {};
  float result[k_block];
  for (size_t i = 0; i < n; i += k_block) {
    const size_t count = n - i < k_block ? n - i : k_block;
    std::memcpy(in, x + i, count * sizeof(float));
    for (size_t j = 0; j < k_block; ++j) result[j] = exp_one(in[j]);
    std::memcpy(out + i, result, count * sizeof(float));
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void exp_blocks_fma(const float* x, size_t n, float* out) {
  exp_blocks(x, n, out);
}
#endif

}  // namespace

void exp_f32_n(const float* x, size_t n, float* out) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    exp_blocks_fma(x, n, out);
    return;
  }
#endif
  exp_blocks(x, n, out);
}

float log_f32(float x) {
  if (!(x > 0.0f)) return x == 0.0f ? -k_infinity : std::numeric_limits<float>::quiet_NaN();
  if (x == k_infinity) return x;
  int32_t exponent = 0;
  if (x < 0x1p-126f) {
    x *= 0x1p24f;
    exponent = -24;
  }
  // x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)).
  const uint32_t bits = std::bit_cast<uint32_t>(x) + (0x3F800000u - 0x3F3504F3u);
  exponent += static_cast<int32_t>(bits >> 23) - 127;
  const float m = std::bit_cast<float>((bits & 0x007FFFFFu) + 0x3F3504F3u);
  // log(1 + f) = f - (h - s (h + R)) with s = f / (2 + f), h = f^2 / 2, R = 2 atanh(s) / s - 2.
  const float f = m - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float series = std::fma(z, 2.0f / 9.0f, 2.0f / 7.0f);
  series = std::fma(z, series, 2.0f / 5.0f);
  series = std::fma(z, series, 2.0f / 3.0f);
  const float h = 0.5f * f * f;
  const float n = static_cast<float>(exponent);
  const float low = std::fma(n, -0x1.05c610p-29f, s * std::fma(z, series, h));
  return std::fma(n, 0x1.62e430p-1f, f - (h - low));
}

double exp_f64(double x) {
  static constexpr double k_series[] = {1.0 / 6227020800.0,
                                        1.0 / 479001600.0,
                                        1.0 / 39916800.0,
                                        1.0 / 3628800.0,
                                        1.0 / 362880.0,
                                        1.0 / 40320.0,
                                        1.0 / 5040.0,
                                        1.0 / 720.0,
                                        1.0 / 120.0,
                                        1.0 / 24.0,
                                        1.0 / 6.0,
                                        0.5,
                                        1.0,
                                        1.0};
  const double t = std::fma(x, 0x1.71547652b82fep+0, k_round_f64);
  const double n = t - k_round_f64;
  double r = std::fma(n, -0x1.62e42fefa39efp-1, x);
  r = std::fma(n, -0x1.abc9e3b39803fp-56, r);
  const int64_t exponent =
      static_cast<int64_t>(std::bit_cast<uint64_t>(t) - std::bit_cast<uint64_t>(k_round_f64));
  const int64_t half = exponent >> 1;
  return polynomial(k_series, r) * power_of_two_f64(half) * power_of_two_f64(exponent - half);
}

double log_f64(double x) {
  static constexpr double k_series[] = {2.0 / 23.0, 2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0,
                                        2.0 / 15.0, 2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0,
                                        2.0 / 7.0,  2.0 / 5.0,  2.0 / 3.0};
  constexpr uint64_t k_sqrt_half = 0x3FE6A09E667F3BCDull;
  const uint64_t bits = std::bit_cast<uint64_t>(x) + (0x3FF0000000000000ull - k_sqrt_half);
  const double n = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  const double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFull) + k_sqrt_half);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double h = 0.5 * f * f;
  const double rest = s * std::fma(z, polynomial(k_series, z), h);
  const double low = std::fma(n, 0x1.abc9e3b39803fp-56, rest);
  return std::fma(n, 0x1.62e42fefa39efp-1, f - (h - low));
}

double pow_f64(double base, double exponent) {
  return exp_f64(exponent * log_f64(base));
}

SinCos sincos_f64(double x) {
  static constexpr double k_sin[] = {
      -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
      -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
  static constexpr double k_cos[] = {
      1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
      1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};
  const double t = std::fma(x, 0x1.45f306dc9c883p-1, k_round_f64);
  const double n = t - k_round_f64;
  double r = std::fma(n, -0x1.921fb54442d18p+0, x);
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  const double z = r * r;
  const double sine = std::fma(r * z, polynomial(k_sin, z), r);
  const double cosine = std::fma(z * z, polynomial(k_cos, z), std::fma(-0.5, z, 1.0));
  switch (std::bit_cast<uint64_t>(t) & 3u) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace outrider
