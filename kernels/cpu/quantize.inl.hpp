#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/rows.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// One row of QuantizedRows; k is a multiple of k_sum_group. value(i) is x[i … i + 15].
template <class Value>
OUTRIDER_INLINE void quantize_values(Value value, size_t k, int16_t* codes, float* sums,
                                     float* scale) {
  Ints top = zero_ints();
  for (size_t i = 0; i < k; i += 16) top = max(top, magnitude_bits(value(i)));
  const float largest = __builtin_bit_cast(float, reduce_max(top));
  const bool finite = largest <= 0x1.FFFFFEp127f;
  const bool plain = finite && largest >= k_quantized_least;
  // No finite row has the scale NaN: the products then say so, too.
  *scale = plain ? largest / k_code_max : finite ? 0.0f : __builtin_nanf("");
  const Vec inverse = broadcast(plain ? k_code_max / largest : 0.0f);
  for (size_t i = 0; i < k; i += k_sum_group) {
    Ints sum = zero_ints();
    for (size_t j = i; j < i + k_sum_group; j += 16) {
      Ints code = zero_ints();
      if (plain) code = to_int(value(j) * inverse);
      store_int16(codes + j, code);
      sum = sum + code;
    }
    sums[i / k_sum_group] = static_cast<float>(reduce_add(sum));
  }
}

static void quantize_row(const float* x, const float* norm, float eps, size_t k, int16_t* codes,
                         float* sums, float* scale) {
  if (norm == nullptr) {
    quantize_values(
        [&](size_t i) __attribute__((always_inline)) { return load(x + i); }, k, codes, sums,
        scale);
    return;
  }
  const Vec inverse = inverse_rms(x, eps, k);
  quantize_values(
      [&](size_t i)
          __attribute__((always_inline)) { return load(x + i) * inverse * load(norm + i); },
      k, codes, sums, scale);
}

}  // namespace outrider::kernels::OUTRIDER_ISA
