#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#define OUTRIDER_KERNEL __device__ __forceinline__
#define OUTRIDER_ALSO_KERNEL __host__ __device__ __forceinline__
#define OUTRIDER_UNROLL _Pragma("unroll")
#else
#include <cmath>

#include "base/check.hpp"
#include "base/half.hpp"
#define OUTRIDER_KERNEL inline
#define OUTRIDER_ALSO_KERNEL inline
#define OUTRIDER_UNROLL
#endif

/// What kernels are written with. nvcc compiles them for the device; the host compiler compiles the
/// same text for the emulated device (emulated_block.hpp). Every float operation is the one that is
/// written, on both: no contraction, no flushing of denormals.
namespace outrider::kernels::cuda {

/// 8 and 16 bytes that move in one instruction.
struct alignas(8) Words2 {
  uint32_t w[2];
};
struct alignas(16) Words4 {
  uint32_t w[4];
};

OUTRIDER_KERNEL uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
OUTRIDER_KERNEL float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/// In device memory; `at` is aligned to the type.
template <class T>
OUTRIDER_KERNEL T load_as(const void* at) {
#if defined(__CUDACC__)
  return *static_cast<const T*>(at);
#else
  OUTRIDER_CHECK(reinterpret_cast<uintptr_t>(at) % alignof(T) == 0);
  T value;
  memcpy(&value, at, sizeof(value));
  return value;
#endif
}
template <class T>
OUTRIDER_KERNEL void store_as(void* at, const T& value) {
#if defined(__CUDACC__)
  *static_cast<T*>(at) = value;
#else
  OUTRIDER_CHECK(reinterpret_cast<uintptr_t>(at) % alignof(T) == 0);
  memcpy(at, &value, sizeof(value));
#endif
}

/// a * b + c, rounded once.
OUTRIDER_KERNEL float fused(float a, float b, float c) {
#if defined(__CUDACC__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}
OUTRIDER_KERNEL float square_root(float x) {
#if defined(__CUDACC__)
  return __fsqrt_rn(x);
#else
  return std::sqrt(x);
#endif
}

OUTRIDER_KERNEL float half_as_float(uint16_t bits) {
#if defined(__CUDACC__)
  return __half2float(__ushort_as_half(bits));
#else
  return half_to_float(bits);
#endif
}
/// To the nearest, ties to even; NaN becomes base/half's.
OUTRIDER_KERNEL uint16_t float_as_half(float x) {
#if defined(__CUDACC__)
  if (x != x) return static_cast<uint16_t>((bits_of(x) >> 16 & 0x8000u) | 0x7E00u);
  return __half_as_ushort(__float2half_rn(x));
#else
  return float_to_half(x);
#endif
}
/// Two in one register, the first in the low bits.
OUTRIDER_KERNEL uint32_t as_half2(float low, float high) {
  return uint32_t{float_as_half(low)} | uint32_t{float_as_half(high)} << 16;
}
/// Likewise of finite numbers.
OUTRIDER_KERNEL uint32_t finite_as_half2(float low, float high) {
#if defined(__CUDACC__)
  const __half2 both = __floats2half2_rn(low, high);
  uint32_t out;
  memcpy(&out, &both, sizeof(out));
  return out;
#else
  return as_half2(low, high);
#endif
}
/// Of two pairs; exact where kernels use it.
OUTRIDER_KERNEL uint32_t subtract_half2(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  __half2 x, y;
  memcpy(&x, &a, sizeof(x));
  memcpy(&y, &b, sizeof(y));
  const __half2 difference = __hsub2(x, y);
  uint32_t out;
  memcpy(&out, &difference, sizeof(out));
  return out;
#else
  const auto one = [](uint32_t p, uint32_t q) {
    return float_as_half(half_as_float(static_cast<uint16_t>(p)) -
                         half_as_float(static_cast<uint16_t>(q)));
  };
  return uint32_t{one(a & 0xFFFF, b & 0xFFFF)} | uint32_t{one(a >> 16, b >> 16)} << 16;
#endif
}

/// a & b | c.
OUTRIDER_KERNEL uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDACC__)
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#else
  return (a & b) | c;
#endif
}
/// Bytes 2 i and 2 i + 1 of `bytes`, each as the low byte of 16 bits whose high byte is `high`'s.
OUTRIDER_KERNEL uint32_t spread_bytes(uint32_t bytes, uint32_t i, uint32_t high) {
#if defined(__CUDACC__)
  return __byte_perm(bytes, high, i == 0 ? 0x4140 : 0x4342);
#else
  const uint32_t both = bytes >> (16 * i);
  return (both & 0xFF) | (both & 0xFF00) << 8 | (high & 0xFF) * 0x01000100u;
#endif
}

/// Where piece p of 16 bytes stands in row `row` of 128 bytes, so that 8 rows' equal pieces meet no
/// bank twice: the tensor cores' swizzle of 128 bytes.
OUTRIDER_KERNEL uint32_t swizzled_piece(uint32_t row, uint32_t p) {
  return p ^ row % 8;
}

/// a * b and a * b + c of pairs, rounded once.
OUTRIDER_KERNEL uint32_t multiply_half2(uint32_t a, uint32_t b) {
#if defined(__CUDACC__)
  __half2 x, y;
  memcpy(&x, &a, sizeof(x));
  memcpy(&y, &b, sizeof(y));
  const __half2 product = __hmul2_rn(x, y);
  uint32_t out;
  memcpy(&out, &product, sizeof(out));
  return out;
#else
  const auto one = [](uint32_t p, uint32_t q) {
    return float_as_half(half_as_float(static_cast<uint16_t>(p)) *
                         half_as_float(static_cast<uint16_t>(q)));
  };
  return uint32_t{one(a & 0xFFFF, b & 0xFFFF)} | uint32_t{one(a >> 16, b >> 16)} << 16;
#endif
}
OUTRIDER_KERNEL uint32_t fused_half2(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDACC__)
  __half2 x, y, z;
  memcpy(&x, &a, sizeof(x));
  memcpy(&y, &b, sizeof(y));
  memcpy(&z, &c, sizeof(z));
  const __half2 sum = __hfma2(x, y, z);
  uint32_t out;
  memcpy(&out, &sum, sizeof(out));
  return out;
#else
  const auto one = [](uint32_t p, uint32_t q, uint32_t r) {
    const auto number = [](uint32_t bits) {
      return double{half_as_float(static_cast<uint16_t>(bits))};
    };
    // Rounded to odd on the way to float, so that the second rounding is as if it were the only.
    const double sum = number(p) * number(q) + number(r);
    auto near = static_cast<float>(sum);
    if (double{near} != sum && (bits_of(near) & 1) == 0 && sum == sum) {
      const bool below = (double{near} < sum) == (near >= 0);
      near = float_of(bits_of(near) + (below ? 1u : ~0u));
    }
    return uint32_t{float_as_half(near)};
  };
  return one(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF) | one(a >> 16, b >> 16, c >> 16) << 16;
#endif
}
/// Half i of a pair, in both halves.
OUTRIDER_KERNEL uint32_t twice(uint32_t pair, uint32_t i) {
#if defined(__CUDACC__)
  return __byte_perm(pair, 0, i == 0 ? 0x1010 : 0x3232);
#else
  return (pair >> (16 * i) & 0xFFFF) * 0x10001u;
#endif
}

/// Byte i is the one that nibble i of the selector's low 16 bits names, 0 … 7: of a, then of b.
OUTRIDER_KERNEL uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
#if defined(__CUDACC__)
  return __byte_perm(a, b, selector);
#else
  const uint64_t both = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    out |= static_cast<uint32_t>(both >> (8 * from) & 0xFF) << (8 * i);
  }
  return out;
#endif
}

template <class T>
OUTRIDER_KERNEL T least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
OUTRIDER_KERNEL T greatest(T a, T b) {
  return a < b ? b : a;
}

}  // namespace outrider::kernels::cuda
