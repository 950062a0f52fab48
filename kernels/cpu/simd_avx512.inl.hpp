#pragma once

#include <immintrin.h>

namespace outrider::kernels::OUTRIDER_ISA {

// Tiles that fill 32 registers: accumulators, weights and one broadcast.
constexpr size_t k_rows_1 = 8;
constexpr size_t k_rows_2 = 8;
constexpr size_t k_rows_4 = 7;
constexpr size_t k_code_rows = 8;
constexpr size_t k_code_panels = 2;
// Up to so many queries convert keys and values in registers, again for each tile of queries; more
// share one conversion.
constexpr size_t k_direct_queries = ~size_t{0};  // Loads that convert are free here.

struct Vec {
  __m512 v;
};
struct Ints {
  __m512i v;
};

OUTRIDER_INLINE Vec zero() {
  return {_mm512_setzero_ps()};
}
OUTRIDER_INLINE Vec broadcast(float x) {
  return {_mm512_set1_ps(x)};
}
OUTRIDER_INLINE Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
OUTRIDER_INLINE void store(float* p, Vec a) {
  _mm512_storeu_ps(p, a.v);
}

OUTRIDER_INLINE __mmask16 first(size_t n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
/// The first n <= 16 elements, the other lanes 0; reads nothing beyond them.
OUTRIDER_INLINE Vec load_first(const float* p, size_t n) {
  return {_mm512_maskz_loadu_ps(first(n), p)};
}
OUTRIDER_INLINE void store_first(float* p, Vec a, size_t n) {
  _mm512_mask_storeu_ps(p, first(n), a.v);
}
/// Lanes below n from a, the others from b.
OUTRIDER_INLINE Vec select_first(size_t n, Vec a, Vec b) {
  return {_mm512_mask_blend_ps(first(n), b.v, a.v)};
}

/// a * b + c, rounded once.
OUTRIDER_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
OUTRIDER_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
OUTRIDER_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
OUTRIDER_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
OUTRIDER_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
/// b where the two do not compare.
OUTRIDER_INLINE Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}
OUTRIDER_INLINE Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}

OUTRIDER_INLINE Ints bits_of(Vec a) {
  return {_mm512_castps_si512(a.v)};
}
OUTRIDER_INLINE Vec float_of(Ints a) {
  return {_mm512_castsi512_ps(a.v)};
}
OUTRIDER_INLINE Ints broadcast_int(int32_t x) {
  return {_mm512_set1_epi32(x)};
}
OUTRIDER_INLINE Ints operator+(Ints a, Ints b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
OUTRIDER_INLINE Ints operator-(Ints a, Ints b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
template <int n>
OUTRIDER_INLINE Ints shift_left(Ints a) {
  return {_mm512_slli_epi32(a.v, n)};
}
template <int n>
OUTRIDER_INLINE Ints shift_right_signed(Ints a) {
  return {_mm512_srai_epi32(a.v, n)};
}

OUTRIDER_INLINE Vec load_half(const void* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}
OUTRIDER_INLINE void store_half(void* p, Vec a) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
OUTRIDER_INLINE Vec load_bfloat16(const void* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
/// 16 numbers with four bits of exponent and three of fraction, times 2^-8: as halves, which
/// share the form, with another bias.
OUTRIDER_INLINE Vec load_e4m3(const void* p) {
  const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(-0x4080));
  return {_mm512_cvtph_ps(half)};
}
/// 16 signed bytes.
OUTRIDER_INLINE Vec load_int8(const void* p) {
  return {
      _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}
OUTRIDER_INLINE Ints load_ints(const void* p) {
  return {_mm512_loadu_si512(p)};
}

/// 16 unsigned bytes.
OUTRIDER_INLINE Vec load_uint8(const void* p) {
  return {
      _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
}

OUTRIDER_INLINE Ints operator|(Ints a, Ints b) {
  return {_mm512_or_si512(a.v, b.v)};
}
/// 16 words of 16 bits, without sign.
OUTRIDER_INLINE Ints load_words(const void* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
}

// Each lane as a pair of 16-bit integers.

template <int n>
OUTRIDER_INLINE Ints shift_left_16(Ints a) {
  return {_mm512_slli_epi16(a.v, n)};
}
/// Zeros come in, or copies of the sign.
template <int n, bool is_signed>
OUTRIDER_INLINE Ints shift_right_16(Ints a) {
  return {is_signed ? _mm512_srai_epi16(a.v, n) : _mm512_srli_epi16(a.v, n)};
}
template <int mask>
OUTRIDER_INLINE Ints and_16(Ints a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi16(mask))};
}
/// Bits of `mask` from a, the others from b.
template <int mask>
OUTRIDER_INLINE Ints select_16(Ints a, Ints b) {
  return {_mm512_ternarylogic_epi32(_mm512_set1_epi16(mask), a.v, b.v, 0xCA)};
}
/// 16 signed bytes to choose from by the low four bits of each 16-bit integer.
struct Lookup {
  __m512i table;  ///< twice, since five bits choose

  [[gnu::always_inline]] explicit Lookup(const int8_t* bytes)
      : table(_mm512_cvtepi8_epi16(_mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))))) {}
  [[gnu::always_inline]] Ints operator[](Ints index) const {
    return {_mm512_permutexvar_epi16(index.v, table)};
  }
};
/// Both halves of each lane.
OUTRIDER_INLINE Ints broadcast_pair(const int16_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, 4);
  return {_mm512_set1_epi32(pair)};
}
/// acc + a.low * pairs.low + a.high * pairs.high, in 32 bits.
OUTRIDER_INLINE Ints dot_pairs(Ints acc, Ints a, Ints pairs) {
  return {_mm512_dpwssd_epi32(acc.v, a.v, pairs.v)};
}

OUTRIDER_INLINE Ints zero_ints() {
  return {_mm512_setzero_si512()};
}
OUTRIDER_INLINE Vec to_float(Ints a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
/// To the nearest integer, ties to even; |a| < 2^22.
OUTRIDER_INLINE Ints to_int(Vec a) {
  return {_mm512_cvtps_epi32(a.v)};
}
/// The low half of each lane.
OUTRIDER_INLINE void store_int16(int16_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a.v));
}
OUTRIDER_INLINE Ints magnitude_bits(Vec a) {
  return {_mm512_and_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(0x7FFFFFFF))};
}
OUTRIDER_INLINE Ints max(Ints a, Ints b) {
  return {_mm512_max_epi32(a.v, b.v)};
}
OUTRIDER_INLINE int32_t reduce_max(Ints a) {
  return _mm512_reduce_max_epi32(a.v);
}
OUTRIDER_INLINE int32_t reduce_add(Ints a) {
  return _mm512_reduce_add_epi32(a.v);
}

OUTRIDER_INLINE Ints operator^(Ints a, Ints b) {
  return {_mm512_xor_si512(a.v, b.v)};
}
OUTRIDER_INLINE void store_ints(uint32_t* p, Ints a) {
  _mm512_storeu_si512(p, a.v);
}
/// Both halves of the unsigned 64-bit products.
struct WideProduct {
  Ints high, low;
};
OUTRIDER_INLINE WideProduct multiply_wide(Ints a, uint32_t factor) {
  const __m512i f = _mm512_set1_epi32(static_cast<int32_t>(factor));
  const __m512i even = _mm512_mul_epu32(a.v, f);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a.v, 32), f);
  return {{_mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd)},
          {_mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32))}};
}

/// Lanes l and l + n, where l has not the bit n, become their sum and their difference.
template <int n>
OUTRIDER_INLINE Vec butterfly(Vec a) {
  __m512 other;
  if constexpr (n <= 2) {
    other = _mm512_permute_ps(a.v, n == 1 ? 0xB1 : 0x4E);
  } else {
    other = _mm512_shuffle_f32x4(a.v, a.v, n == 4 ? 0xB1 : 0x4E);
  }
  constexpr __mmask16 upper = n == 1 ? 0xAAAA : n == 2 ? 0xCCCC : n == 4 ? 0xF0F0 : 0xFF00;
  return {_mm512_mask_sub_ps(_mm512_add_ps(a.v, other), upper, other, a.v)};
}

/// ((0+8)+(4+12)) + … : lanes l and l+8, then l+4, l+2, l+1.
OUTRIDER_INLINE float reduce_add(Vec a) {
  const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
OUTRIDER_INLINE float reduce_max(Vec a) {
  const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

}  // namespace outrider::kernels::OUTRIDER_ISA
