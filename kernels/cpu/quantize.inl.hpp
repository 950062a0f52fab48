#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// One row of QuantizedRows; k is a multiple of k_sum_group.
static void quantize_row(const float* x, size_t k, int16_t* codes, float* sums, float* scale) {
  Ints top = zero_ints();
  for (size_t i = 0; i < k; i += 16) top = max(top, magnitude_bits(load(x + i)));
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
      if (plain) code = to_int(load(x + j) * inverse);
      store_int16(codes + j, code);
      sum = sum + code;
    }
    sums[i / k_sum_group] = static_cast<float>(reduce_add(sum));
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
