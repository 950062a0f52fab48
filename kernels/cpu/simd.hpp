#pragma once

/// The 16-lane float vector that all CPU kernels are written in. A translation unit defines
/// OUTRIDER_ISA (portable, avx2, avx_vnni or avx512) and its instruction set; everything here then
/// lives in the namespace of that name and is always inlined. All give the same bits: a lane sees
/// the same IEEE operations whatever register it sits in.
///
/// Sources that include this must not use inline functions of other headers (std::min, std::vector,
/// …): the linker may keep their AVX-512 copy for the whole program.
#include <cstddef>
#include <cstdint>

#define OUTRIDER_INLINE [[gnu::always_inline]] static inline

// clang-format off
#if defined(__AVX512F__)
#include "kernels/cpu/simd_avx512.inl.hpp"
#elif defined(__AVX2__)
#include "kernels/cpu/simd_avx2.inl.hpp"
#else
#include "kernels/cpu/simd_portable.inl.hpp"
#endif
// clang-format on

namespace outrider::kernels::OUTRIDER_ISA {

constexpr size_t k_lanes = 16;

OUTRIDER_INLINE constexpr size_t min_of(size_t a, size_t b) {
  return a < b ? a : b;
}
OUTRIDER_INLINE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

}  // namespace outrider::kernels::OUTRIDER_ISA
