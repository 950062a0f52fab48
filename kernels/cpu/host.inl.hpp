#pragma once

#include "base/philox.hpp"  // constants only: see simd.hpp
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

static bool find_peaks(const float* row, size_t n, float* peaks) {
  Ints largest = zero_ints();
  for (size_t at = 0; at < n; at += 64) {
    Vec top = broadcast(-__builtin_inff());
    for (size_t i = at; i < min_of(n, at + 64); i += 16) {
      const size_t count = min_of(16, n - i);
      const Vec v = load_first(row + i, count);
      largest = max(largest, magnitude_bits(v));
      top = max(top, select_first(count, v, top));
    }
    peaks[at / 64] = reduce_max(top);
  }
  return reduce_max(largest) < 0x7F800000;
}

static void philox_block(const uint32_t* counter, const uint32_t* key, uint32_t* out) {
  alignas(64) uint32_t first[16];
  for (uint32_t i = 0; i < 16; ++i) first[i] = counter[0] + i;
  Ints c0 = load_ints(first);
  Ints c1 = broadcast_int(static_cast<int32_t>(counter[1]));
  Ints c2 = broadcast_int(static_cast<int32_t>(counter[2]));
  Ints c3 = broadcast_int(static_cast<int32_t>(counter[3]));
  uint32_t key0 = key[0];
  uint32_t key1 = key[1];
  for (int round = 0; round < k_philox_rounds; ++round) {
    const WideProduct a = multiply_wide(c0, k_philox_factor_0);
    const WideProduct b = multiply_wide(c2, k_philox_factor_1);
    c0 = b.high ^ c1 ^ broadcast_int(static_cast<int32_t>(key0));
    c2 = a.high ^ c3 ^ broadcast_int(static_cast<int32_t>(key1));
    c1 = b.low;
    c3 = a.low;
    key0 += k_philox_step_0;
    key1 += k_philox_step_1;
  }
  alignas(64) uint32_t draws[4][16];
  store_ints(draws[0], c0);
  store_ints(draws[1], c1);
  store_ints(draws[2], c2);
  store_ints(draws[3], c3);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t d = 0; d < 4; ++d) out[4 * i + d] = draws[d][i];
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
