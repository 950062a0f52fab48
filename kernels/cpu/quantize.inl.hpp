#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/rows.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// Codes of k numbers, a multiple of 16, by the rule of QuantizedRows: emit(i, codes of i … i +
/// 15). value(i) is x[i … i + 15]. Returns the scale.
template <class Value, class Emit>
OUTRIDER_INLINE float quantize_values(Value value, size_t k, Emit emit) {
  Ints top = zero_ints();
  for (size_t i = 0; i < k; i += 16) top = max(top, magnitude_bits(value(i)));
  const float largest = __builtin_bit_cast(float, reduce_max(top));
  const bool finite = largest <= 0x1.FFFFFEp127f;
  const bool plain = finite && largest >= k_quantized_least;
  const Vec inverse = broadcast(plain ? k_code_max / largest : 0.0f);
  for (size_t i = 0; i < k; i += 16) emit(i, plain ? to_int(value(i) * inverse) : zero_ints());
  // No finite row has the scale NaN: the products then say so, too.
  return plain ? largest / k_code_max : finite ? 0.0f : __builtin_nanf("");
}

/// One row of QuantizedRows; k is a multiple of k_sum_group.
template <class Value>
OUTRIDER_INLINE void quantize_values(Value value, size_t k, int16_t* codes, float* sums,
                                     float* scale) {
  static_assert(k_sum_group == 32);
  Ints sum = zero_ints();
  *scale = quantize_values(
      value, k, [&](size_t i, Ints code) __attribute__((always_inline)) {
        store_int16(codes + i, code);
        sum = i % k_sum_group == 0 ? code : sum + code;
        if (i % k_sum_group != 0) sums[i / k_sum_group] = static_cast<float>(reduce_add(sum));
      });
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
