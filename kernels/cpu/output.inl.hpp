#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// How far ahead of its use a weight is asked for: with few rows, reading is what takes the time.
constexpr size_t k_prefetch_bytes = 4096;

/// y of one row and one panel: bias, then the old value (see MatmulArgs).
OUTRIDER_INLINE void finish(const MatmulArgs& a, size_t row, size_t panel, Vec acc) {
  const size_t width = min_of(16, a.n - 16 * panel);
  float* y = a.y + row * a.n + 16 * panel;
  if (a.bias != nullptr) acc = acc + load_first(a.bias + 16 * panel, width);
  if (a.accumulate) acc = acc + load_first(y, width);
  store_first(y, acc, width);
}

}  // namespace outrider::kernels::OUTRIDER_ISA
