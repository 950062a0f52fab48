#pragma once

#include <cstddef>
#include <cstdint>

/// Elementary functions that give the same bits on every machine: written coefficients, every
/// rounding explicit (std::fma is exact by definition), no libm. Thread-safe, no state.
/// Results that reach a client or a KV cache may use these and never std::exp and its family.
namespace outrider {

/// e^x, error below 1.0 ulp (0.9 measured). Underflows gradually to 0 below -104, infinity above
/// 88.73; NaN stays NaN. `kernels/cpu` has the same function for 16 lanes, with the same bits.
float exp_f32(float x);

/// out[i] = exp_f32(x[i]), the same bits, many at a time. `out` may be `x`.
void exp_f32_n(const float* x, size_t n, float* out);

/// Natural logarithm, error below 1.0 ulp (0.85 measured). -infinity at 0, NaN below.
float log_f32(float x);

/// Double versions for tables: relative error below 1e-15.
double exp_f64(double x);  ///< |x| <= 700
double log_f64(double x);  ///< x > 0, normal and finite
/// base^exponent for base > 0 and |exponent * log(base)| <= 700, relative error below
/// 1e-15 * (2 + |exponent * log(base)|).
double pow_f64(double base, double exponent);

struct SinCos {
  double sin = 0;
  double cos = 0;
};
/// |x| <= 2^30, absolute error below 1e-15.
SinCos sincos_f64(double x);

}  // namespace outrider
