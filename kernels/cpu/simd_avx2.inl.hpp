#pragma once

#include <immintrin.h>

namespace outrider::kernels::OUTRIDER_ISA {

// Tiles that fill 16 registers of half a vector: accumulators, weights and one broadcast.
constexpr size_t k_rows_1 = 6;
constexpr size_t k_rows_2 = 3;
constexpr size_t k_rows_4 = 1;
#if defined(__AVXVNNI__)
constexpr size_t k_code_rows = 2;
constexpr size_t k_code_panels = 2;
#else
constexpr size_t k_code_rows = 6;
constexpr size_t k_code_panels = 1;
#endif
// Up to so many queries convert keys and values in registers, again for each tile of queries; more
// share one conversion.
constexpr size_t k_direct_queries = 2 * k_rows_2;

struct Vec {
  __m256 lo, hi;
};
struct Ints {
  __m256i lo, hi;
};

OUTRIDER_INLINE Vec zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
OUTRIDER_INLINE Vec broadcast(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
OUTRIDER_INLINE Vec load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
OUTRIDER_INLINE void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}

OUTRIDER_INLINE Ints first(size_t n) {
  const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
  return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
          _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
/// The first n <= 16 elements, the other lanes 0; reads nothing beyond them.
OUTRIDER_INLINE Vec load_first(const float* p, size_t n) {
  const Ints mask = first(n);
  return {_mm256_maskload_ps(p, mask.lo), _mm256_maskload_ps(p + 8, mask.hi)};
}
OUTRIDER_INLINE void store_first(float* p, Vec a, size_t n) {
  const Ints mask = first(n);
  _mm256_maskstore_ps(p, mask.lo, a.lo);
  _mm256_maskstore_ps(p + 8, mask.hi, a.hi);
}
/// Lanes below n from a, the others from b.
OUTRIDER_INLINE Vec select_first(size_t n, Vec a, Vec b) {
  const Ints mask = first(n);
  return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(mask.lo)),
          _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(mask.hi))};
}

/// a * b + c, rounded once.
OUTRIDER_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
OUTRIDER_INLINE Vec operator+(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
OUTRIDER_INLINE Vec operator-(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
OUTRIDER_INLINE Vec operator*(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
OUTRIDER_INLINE Vec operator/(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
/// b where the two do not compare.
OUTRIDER_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
OUTRIDER_INLINE Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

OUTRIDER_INLINE Ints bits_of(Vec a) {
  return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)};
}
OUTRIDER_INLINE Vec float_of(Ints a) {
  return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)};
}
OUTRIDER_INLINE Ints broadcast_int(int32_t x) {
  const __m256i v = _mm256_set1_epi32(x);
  return {v, v};
}
OUTRIDER_INLINE Ints operator+(Ints a, Ints b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
OUTRIDER_INLINE Ints operator-(Ints a, Ints b) {
  return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)};
}
template <int n>
OUTRIDER_INLINE Ints shift_left(Ints a) {
  return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
}
template <int n>
OUTRIDER_INLINE Ints shift_right_signed(Ints a) {
  return {_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
}

OUTRIDER_INLINE Vec load_half(const void* p) {
  const __m128i* in = static_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(in)), _mm256_cvtph_ps(_mm_loadu_si128(in + 1))};
}
OUTRIDER_INLINE void store_half(void* p, Vec a) {
  __m128i* out = static_cast<__m128i*>(p);
  _mm_storeu_si128(out, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(out + 1, _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}
OUTRIDER_INLINE Vec load_bfloat16(const void* p) {
  const __m128i* in = static_cast<const __m128i*>(p);
  const Ints wide = {_mm256_cvtepu16_epi32(_mm_loadu_si128(in)),
                     _mm256_cvtepu16_epi32(_mm_loadu_si128(in + 1))};
  return float_of(shift_left<16>(wide));
}
/// 16 numbers with four bits of exponent and three of fraction, times 2^-8: as halves, which
/// share the form, with another bias.
OUTRIDER_INLINE Vec load_e4m3(const void* p) {
  const __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(code, 7), _mm256_set1_epi16(-0x4080));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}
/// 16 signed bytes.
OUTRIDER_INLINE Vec load_int8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}
OUTRIDER_INLINE Ints load_ints(const void* p) {
  const __m256i* in = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(in), _mm256_loadu_si256(in + 1)};
}

/// 16 unsigned bytes.
OUTRIDER_INLINE Vec load_uint8(const void* p) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
}

OUTRIDER_INLINE Ints operator|(Ints a, Ints b) {
  return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
/// 16 words of 16 bits, without sign.
OUTRIDER_INLINE Ints load_words(const void* p) {
  const __m128i* in = static_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(in)),
          _mm256_cvtepu16_epi32(_mm_loadu_si128(in + 1))};
}

// Each lane as a pair of 16-bit integers.

/// Both halves of each lane.
OUTRIDER_INLINE Ints broadcast_pair(const int16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return broadcast_int(pair);
}
template <int n>
OUTRIDER_INLINE Ints shift_left_16(Ints a) {
  return {_mm256_slli_epi16(a.lo, n), _mm256_slli_epi16(a.hi, n)};
}
/// Zeros come in, or copies of the sign.
template <int n, bool is_signed>
OUTRIDER_INLINE Ints shift_right_16(Ints a) {
  if constexpr (is_signed) return {_mm256_srai_epi16(a.lo, n), _mm256_srai_epi16(a.hi, n)};
  return {_mm256_srli_epi16(a.lo, n), _mm256_srli_epi16(a.hi, n)};
}
template <int mask>
OUTRIDER_INLINE Ints and_16(Ints a) {
  const __m256i bits = _mm256_set1_epi16(mask);
  return {_mm256_and_si256(a.lo, bits), _mm256_and_si256(a.hi, bits)};
}
/// Bits of `mask` from a, the others from b.
template <int mask>
OUTRIDER_INLINE Ints select_16(Ints a, Ints b) {
  const __m256i bits = _mm256_set1_epi16(mask);
  return {_mm256_or_si256(_mm256_and_si256(a.lo, bits), _mm256_andnot_si256(bits, b.lo)),
          _mm256_or_si256(_mm256_and_si256(a.hi, bits), _mm256_andnot_si256(bits, b.hi))};
}
/// 16 signed bytes to choose from by the low four bits of each 16-bit integer.
struct Lookup {
  __m256i table;  ///< once for each half

  [[gnu::always_inline]] explicit Lookup(const int8_t* bytes)
      : table(
            _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)))) {
  }
  [[gnu::always_inline]] Ints operator[](Ints index) const {
    return {choose(index.lo), choose(index.hi)};
  }

 private:
  /// Chosen in the upper byte, which comes down with its sign.
  [[gnu::always_inline]] __m256i choose(__m256i index) const {
    const __m256i upper = _mm256_and_si256(_mm256_slli_epi16(index, 8), _mm256_set1_epi16(0x0F00));
    return _mm256_srai_epi16(_mm256_shuffle_epi8(table, upper), 8);
  }
};
/// acc + a.low * pairs.low + a.high * pairs.high, in 32 bits.
OUTRIDER_INLINE Ints dot_pairs(Ints acc, Ints a, Ints pairs) {
#if defined(__AVXVNNI__)
  return {_mm256_dpwssd_avx_epi32(acc.lo, a.lo, pairs.lo),
          _mm256_dpwssd_avx_epi32(acc.hi, a.hi, pairs.hi)};
#else
  acc = {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, pairs.lo)),
         _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, pairs.hi))};
  // Or the compiler reorders the sums, computes all products first and keeps them in memory.
  asm("" : "+x"(acc.lo), "+x"(acc.hi));
  return acc;
#endif
}

OUTRIDER_INLINE Ints zero_ints() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
OUTRIDER_INLINE Vec to_float(Ints a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
/// To the nearest integer, ties to even; |a| < 2^22.
OUTRIDER_INLINE Ints to_int(Vec a) {
  return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)};
}
/// Lanes that fit 16 bits.
OUTRIDER_INLINE void store_int16(int16_t* p, Ints a) {
  const __m256i packed = _mm256_packs_epi32(a.lo, a.hi);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
OUTRIDER_INLINE Ints magnitude_bits(Vec a) {
  const __m256i bits = _mm256_set1_epi32(0x7FFFFFFF);
  return {_mm256_and_si256(_mm256_castps_si256(a.lo), bits),
          _mm256_and_si256(_mm256_castps_si256(a.hi), bits)};
}
OUTRIDER_INLINE Ints max(Ints a, Ints b) {
  return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
OUTRIDER_INLINE int32_t reduce_max(Ints a) {
  const __m256i b = _mm256_max_epi32(a.lo, a.hi);
  __m128i c = _mm_max_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  c = _mm_max_epi32(c, _mm_shuffle_epi32(c, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}
OUTRIDER_INLINE int32_t reduce_add(Ints a) {
  const __m256i b = _mm256_add_epi32(a.lo, a.hi);
  __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
  c = _mm_add_epi32(c, _mm_shuffle_epi32(c, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(c, _mm_shuffle_epi32(c, 0xB1)));
}

OUTRIDER_INLINE Ints operator^(Ints a, Ints b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
OUTRIDER_INLINE void store_ints(uint32_t* p, Ints a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), a.hi);
}
/// Both halves of the unsigned 64-bit products.
struct WideProduct {
  Ints high, low;
};
OUTRIDER_INLINE WideProduct multiply_wide(Ints a, uint32_t factor) {
  const __m256i f = _mm256_set1_epi32(static_cast<int32_t>(factor));
  const __m256i even_lo = _mm256_mul_epu32(a.lo, f);
  const __m256i even_hi = _mm256_mul_epu32(a.hi, f);
  const __m256i odd_lo = _mm256_mul_epu32(_mm256_srli_epi64(a.lo, 32), f);
  const __m256i odd_hi = _mm256_mul_epu32(_mm256_srli_epi64(a.hi, 32), f);
  return {{_mm256_blend_epi32(_mm256_srli_epi64(even_lo, 32), odd_lo, 0xAA),
           _mm256_blend_epi32(_mm256_srli_epi64(even_hi, 32), odd_hi, 0xAA)},
          {_mm256_blend_epi32(even_lo, _mm256_slli_epi64(odd_lo, 32), 0xAA),
           _mm256_blend_epi32(even_hi, _mm256_slli_epi64(odd_hi, 32), 0xAA)}};
}

template <int n>
OUTRIDER_INLINE __m256 butterfly(__m256 a) {
  __m256 other;
  if constexpr (n <= 2) {
    other = _mm256_permute_ps(a, n == 1 ? 0xB1 : 0x4E);
  } else {
    other = _mm256_permute2f128_ps(a, a, 1);
  }
  return _mm256_blend_ps(_mm256_add_ps(a, other), _mm256_sub_ps(other, a),
                         n == 1   ? 0xAA
                         : n == 2 ? 0xCC
                                  : 0xF0);
}
/// Lanes l and l + n, where l has not the bit n, become their sum and their difference.
template <int n>
OUTRIDER_INLINE Vec butterfly(Vec a) {
  if constexpr (n == 8) {
    return {_mm256_add_ps(a.lo, a.hi), _mm256_sub_ps(a.lo, a.hi)};
  } else {
    return {butterfly<n>(a.lo), butterfly<n>(a.hi)};
  }
}

/// ((0+8)+(4+12)) + … : lanes l and l+8, then l+4, l+2, l+1.
OUTRIDER_INLINE float reduce_add(Vec a) {
  const __m256 b = _mm256_add_ps(a.lo, a.hi);
  const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
OUTRIDER_INLINE float reduce_max(Vec a) {
  const __m256 b = _mm256_max_ps(a.lo, a.hi);
  const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

}  // namespace outrider::kernels::OUTRIDER_ISA
