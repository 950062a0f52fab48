#pragma once

#include <string.h>

namespace outrider::kernels::OUTRIDER_ISA {

// A path for correctness: few shapes, so that it compiles fast.
constexpr size_t k_rows_1 = 2;
constexpr size_t k_rows_2 = 1;
constexpr size_t k_rows_4 = 0;
constexpr size_t k_code_rows = 2;
constexpr size_t k_code_panels = 2;
// Up to so many queries convert keys and values in registers, again for each tile of queries; more
// share one conversion.
constexpr size_t k_direct_queries = 2 * k_rows_2;

struct Vec {
  float v[16];
};
struct Ints {
  uint32_t v[16];
};

/// A vector whose lane l is f(l).
template <class Lane>
OUTRIDER_INLINE Vec each(Lane f) {
  Vec out;
#pragma GCC unroll 1
  for (size_t l = 0; l < 16; ++l) out.v[l] = f(l);
  return out;
}
template <class Lane>
OUTRIDER_INLINE Ints each_int(Lane f) {
  Ints out;
#pragma GCC unroll 1
  for (size_t l = 0; l < 16; ++l) out.v[l] = f(l);
  return out;
}
OUTRIDER_INLINE float float_from(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
OUTRIDER_INLINE uint32_t bits_from(float x) {
  return __builtin_bit_cast(uint32_t, x);
}

OUTRIDER_INLINE Vec zero() {
  return Vec{};
}
OUTRIDER_INLINE Vec broadcast(float x) {
  return each([&](size_t) { return x; });
}
OUTRIDER_INLINE Vec load(const float* p) {
  return each([&](size_t l) { return p[l]; });
}
OUTRIDER_INLINE void store(float* p, Vec a) {
  memcpy(p, a.v, sizeof(a.v));
}

/// The first n <= 16 elements, the other lanes 0; reads nothing beyond them.
OUTRIDER_INLINE Vec load_first(const float* p, size_t n) {
  return each([&](size_t l) { return l < n ? p[l] : 0.0f; });
}
OUTRIDER_INLINE void store_first(float* p, Vec a, size_t n) {
  for (size_t l = 0; l < n; ++l) p[l] = a.v[l];
}
/// Lanes below n from a, the others from b.
OUTRIDER_INLINE Vec select_first(size_t n, Vec a, Vec b) {
  return each([&](size_t l) { return l < n ? a.v[l] : b.v[l]; });
}

/// a * b + c, rounded once.
OUTRIDER_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return each([&](size_t l) { return __builtin_fmaf(a.v[l], b.v[l], c.v[l]); });
}
OUTRIDER_INLINE Vec operator+(Vec a, Vec b) {
  return each([&](size_t l) { return a.v[l] + b.v[l]; });
}
OUTRIDER_INLINE Vec operator-(Vec a, Vec b) {
  return each([&](size_t l) { return a.v[l] - b.v[l]; });
}
OUTRIDER_INLINE Vec operator*(Vec a, Vec b) {
  return each([&](size_t l) { return a.v[l] * b.v[l]; });
}
OUTRIDER_INLINE Vec operator/(Vec a, Vec b) {
  return each([&](size_t l) { return a.v[l] / b.v[l]; });
}
/// b where the two do not compare.
OUTRIDER_INLINE Vec max(Vec a, Vec b) {
  return each([&](size_t l) { return a.v[l] > b.v[l] ? a.v[l] : b.v[l]; });
}
OUTRIDER_INLINE Vec min(Vec a, Vec b) {
  return each([&](size_t l) { return a.v[l] < b.v[l] ? a.v[l] : b.v[l]; });
}

OUTRIDER_INLINE Ints bits_of(Vec a) {
  return each_int([&](size_t l) { return bits_from(a.v[l]); });
}
OUTRIDER_INLINE Vec float_of(Ints a) {
  return each([&](size_t l) { return float_from(a.v[l]); });
}
OUTRIDER_INLINE Ints broadcast_int(int32_t x) {
  return each_int([&](size_t) { return static_cast<uint32_t>(x); });
}
OUTRIDER_INLINE Ints operator+(Ints a, Ints b) {
  return each_int([&](size_t l) { return a.v[l] + b.v[l]; });
}
OUTRIDER_INLINE Ints operator-(Ints a, Ints b) {
  return each_int([&](size_t l) { return a.v[l] - b.v[l]; });
}
template <int n>
OUTRIDER_INLINE Ints shift_left(Ints a) {
  return each_int([&](size_t l) { return a.v[l] << n; });
}
template <int n>
OUTRIDER_INLINE Ints shift_right_signed(Ints a) {
  return each_int(
      [&](size_t l) { return static_cast<uint32_t>(static_cast<int32_t>(a.v[l]) >> n); });
}

OUTRIDER_INLINE uint16_t read_u16(const void* p, size_t i) {
  uint16_t value;
  memcpy(&value, static_cast<const char*>(p) + 2 * i, sizeof(value));
  return value;
}

/// As base/half.hpp, which this file must not include (see simd.hpp).
OUTRIDER_INLINE float half_value(uint32_t bits) {
  const uint32_t rest = (bits & 0x7FFFu) << 13;
  uint32_t out = bits_from(float_from(rest) * 0x1p112f);
  if ((bits & 0x7C00u) == 0x7C00u) out |= 0x7F800000u | rest;
  return float_from(out | (bits & 0x8000u) << 16);
}
OUTRIDER_INLINE uint16_t half_bits(float value) {
  const uint32_t bits = bits_from(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    return static_cast<uint16_t>(sign | (bits_from(float_from(magnitude) + 0.5f) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

OUTRIDER_INLINE Vec load_half(const void* p) {
  return each([&](size_t l) { return half_value(read_u16(p, l)); });
}
OUTRIDER_INLINE void store_half(void* p, Vec a) {
  for (size_t l = 0; l < 16; ++l) {
    const uint16_t bits = half_bits(a.v[l]);
    memcpy(static_cast<char*>(p) + 2 * l, &bits, sizeof(bits));
  }
}
OUTRIDER_INLINE Vec load_bfloat16(const void* p) {
  return each([&](size_t l) { return float_from(uint32_t{read_u16(p, l)} << 16); });
}
/// 16 numbers with four bits of exponent and three of fraction, times 2^-8.
OUTRIDER_INLINE Vec load_e4m3(const void* p) {
  return each([&](size_t l) {
    const uint32_t code = static_cast<const uint8_t*>(p)[l];
    return float_from((code & 0x7F) << 20 | (code & 0x80) << 24) * 0x1p112f;
  });
}
/// 16 signed bytes.
OUTRIDER_INLINE Vec load_int8(const void* p) {
  return each([&](size_t l) { return static_cast<float>(static_cast<const int8_t*>(p)[l]); });
}
OUTRIDER_INLINE Ints load_ints(const void* p) {
  Ints out;
  memcpy(out.v, p, sizeof(out.v));
  return out;
}

/// 16 unsigned bytes.
OUTRIDER_INLINE Vec load_uint8(const void* p) {
  return each([&](size_t l) { return static_cast<float>(static_cast<const uint8_t*>(p)[l]); });
}

OUTRIDER_INLINE Ints operator|(Ints a, Ints b) {
  return each_int([&](size_t l) { return a.v[l] | b.v[l]; });
}
/// 16 words of 16 bits, without sign.
OUTRIDER_INLINE Ints load_words(const void* p) {
  return each_int([&](size_t l) { return uint32_t{read_u16(p, l)}; });
}

// Each lane as a pair of 16-bit integers.

OUTRIDER_INLINE int32_t low_16(uint32_t pair) {
  return static_cast<int16_t>(pair);
}
OUTRIDER_INLINE int32_t high_16(uint32_t pair) {
  return static_cast<int32_t>(pair) >> 16;
}
OUTRIDER_INLINE uint32_t pair_of(uint32_t low, uint32_t high) {
  return (low & 0xFFFFu) | high << 16;
}

OUTRIDER_INLINE Ints broadcast_pair(const int16_t* p) {
  int32_t pair;
  memcpy(&pair, p, sizeof(pair));
  return broadcast_int(pair);
}
template <int n>
OUTRIDER_INLINE Ints shift_left_16(Ints a) {
  return each_int([&](size_t l) { return pair_of(a.v[l] << n, a.v[l] >> 16 << n); });
}
/// Zeros come in, or copies of the sign.
template <int n, bool is_signed>
OUTRIDER_INLINE Ints shift_right_16(Ints a) {
  return each_int([&](size_t l) {
    if constexpr (is_signed) {
      return pair_of(static_cast<uint32_t>(low_16(a.v[l]) >> n),
                     static_cast<uint32_t>(high_16(a.v[l]) >> n));
    } else {
      return pair_of((a.v[l] & 0xFFFFu) >> n, a.v[l] >> 16 >> n);
    }
  });
}
template <int mask>
OUTRIDER_INLINE Ints and_16(Ints a) {
  return each_int([&](size_t l) { return a.v[l] & pair_of(mask, mask); });
}
/// Bits of `mask` from a, the others from b.
template <int mask>
OUTRIDER_INLINE Ints select_16(Ints a, Ints b) {
  constexpr uint32_t bits = mask * 0x10001u;
  return each_int([&](size_t l) { return (a.v[l] & bits) | (b.v[l] & ~bits); });
}
/// 16 signed bytes to choose from by the low four bits of each 16-bit integer.
struct Lookup {
  const int8_t* table;

  [[gnu::always_inline]] explicit Lookup(const int8_t* bytes) : table(bytes) {}
  [[gnu::always_inline]] Ints operator[](Ints index) const {
    return each_int([&](size_t l) {
      return pair_of(static_cast<uint32_t>(table[index.v[l] & 15]),
                     static_cast<uint32_t>(table[index.v[l] >> 16 & 15]));
    });
  }
};
/// acc + a.low * pairs.low + a.high * pairs.high, in 32 bits.
OUTRIDER_INLINE Ints dot_pairs(Ints acc, Ints a, Ints pairs) {
  return each_int([&](size_t l) {
    const int32_t low = low_16(a.v[l]) * low_16(pairs.v[l]);
    const int32_t high = high_16(a.v[l]) * high_16(pairs.v[l]);
    return acc.v[l] + static_cast<uint32_t>(low) + static_cast<uint32_t>(high);
  });
}

OUTRIDER_INLINE Ints zero_ints() {
  return Ints{};
}
OUTRIDER_INLINE Vec to_float(Ints a) {
  return each([&](size_t l) { return static_cast<float>(static_cast<int32_t>(a.v[l])); });
}
/// To the nearest integer, ties to even; |a| < 2^22.
OUTRIDER_INLINE Ints to_int(Vec a) {
  return each_int([&](size_t l) {
    const float rounded = (a.v[l] + 0x1.8p23f) - 0x1.8p23f;
    return static_cast<uint32_t>(static_cast<int32_t>(rounded));
  });
}
/// The low half of each lane.
OUTRIDER_INLINE void store_int16(int16_t* p, Ints a) {
  for (size_t l = 0; l < 16; ++l) p[l] = static_cast<int16_t>(a.v[l]);
}
OUTRIDER_INLINE Ints magnitude_bits(Vec a) {
  return each_int([&](size_t l) { return bits_from(a.v[l]) & 0x7FFFFFFFu; });
}
OUTRIDER_INLINE Ints max(Ints a, Ints b) {
  return each_int([&](size_t l) {
    return static_cast<int32_t>(a.v[l]) > static_cast<int32_t>(b.v[l]) ? a.v[l] : b.v[l];
  });
}
OUTRIDER_INLINE int32_t reduce_max(Ints a) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) {
      const auto other = static_cast<int32_t>(a.v[l + half]);
      if (static_cast<int32_t>(a.v[l]) < other) a.v[l] = a.v[l + half];
    }
  }
  return static_cast<int32_t>(a.v[0]);
}
OUTRIDER_INLINE int32_t reduce_add(Ints a) {
  for (size_t l = 1; l < 16; ++l) a.v[0] += a.v[l];
  return static_cast<int32_t>(a.v[0]);
}

OUTRIDER_INLINE Ints operator^(Ints a, Ints b) {
  return each_int([&](size_t l) { return a.v[l] ^ b.v[l]; });
}
OUTRIDER_INLINE void store_ints(uint32_t* p, Ints a) {
  memcpy(p, a.v, sizeof(a.v));
}
/// Both halves of the unsigned 64-bit products.
struct WideProduct {
  Ints high, low;
};
OUTRIDER_INLINE WideProduct multiply_wide(Ints a, uint32_t factor) {
  return {
      each_int([&](size_t l) { return static_cast<uint32_t>(uint64_t{a.v[l]} * factor >> 32); }),
      each_int([&](size_t l) { return a.v[l] * factor; })};
}

/// Lanes l and l + n, where l has not the bit n, become their sum and their difference.
template <int n>
OUTRIDER_INLINE Vec butterfly(Vec a) {
  return each([&](size_t l) { return (l & n) == 0 ? a.v[l] + a.v[l + n] : a.v[l - n] - a.v[l]; });
}

/// ((0+8)+(4+12)) + … : lanes l and l+8, then l+4, l+2, l+1.
OUTRIDER_INLINE float reduce_add(Vec a) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) a.v[l] = a.v[l] + a.v[l + half];
  }
  return a.v[0];
}
OUTRIDER_INLINE float reduce_max(Vec a) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t l = 0; l < half; ++l) a.v[l] = a.v[l] > a.v[l + half] ? a.v[l] : a.v[l + half];
  }
  return a.v[0];
}

}  // namespace outrider::kernels::OUTRIDER_ISA
