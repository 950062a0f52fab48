#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/vector_math.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

/// 1 / sqrt(mean of squares + eps). The sum of squares runs over 16 lanes and the fixed tree; a
/// short last vector is zero-filled.
OUTRIDER_INLINE Vec inverse_rms(const float* x, float eps, size_t d) {
  Vec squares = zero();
  for (size_t i = 0; i < d; i += 16) {
    const Vec v = load_first(x + i, min_of(16, d - i));
    squares = fma(v, v, squares);
  }
  const float mean = reduce_add(squares) / static_cast<float>(d);
  return broadcast(1.0f / __builtin_sqrtf(mean + eps));
}

static void rms_norm(const float* x, const float* weight, float eps, size_t d, float* out) {
  const Vec inverse = inverse_rms(x, eps, d);
  for (size_t i = 0; i < d; i += 16) {
    const size_t n = min_of(16, d - i);
    store_first(out + i, load_first(x + i, n) * inverse * load_first(weight + i, n), n);
  }
}

/// The rotation of both styles: (a c - b s, b c + a s), the first product of each inside the FMA.
static void rope_adjacent(const float* cosine, const float* sine, size_t rotary_dim, float* x) {
  for (size_t i = 0; i < rotary_dim / 2; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = fma(a, cosine[i], -(b * sine[i]));
    x[2 * i + 1] = fma(b, cosine[i], a * sine[i]);
  }
}

static void rope_halves(const float* cosine, const float* sine, size_t rotary_dim, float* x) {
  const size_t half = rotary_dim / 2;
  for (size_t i = 0; i < half; i += 16) {
    const size_t n = min_of(16, half - i);
    const Vec c = load_first(cosine + i, n);
    const Vec s = load_first(sine + i, n);
    const Vec a = load_first(x + i, n);
    const Vec b = load_first(x + half + i, n);
    store_first(x + i, fma(a, c, zero() - b * s), n);
    store_first(x + half + i, fma(b, c, a * s), n);
  }
}

static void swiglu_array(const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t count = min_of(16, n - i);
    store_first(out + i, swiglu(load_first(gate + i, count), load_first(up + i, count)), count);
  }
}

static void exp_array(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t count = min_of(16, n - i);
    store_first(out + i, exp(load_first(x + i, count)), count);
  }
}

static void exp2_array(const float* x, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t count = min_of(16, n - i);
    store_first(out + i, exp2_of_negative(load_first(x + i, count)), count);
  }
}

/// Writes 16 values with a stride, as float or half.
OUTRIDER_INLINE void scatter(Vec v, size_t n, bool half, size_t stride, std::byte* out) {
  if (half) {
    uint16_t bits[16];
    store_half(bits, v);
    for (size_t l = 0; l < n; ++l) __builtin_memcpy(out + l * stride * 2, &bits[l], 2);
  } else {
    float values[16];
    store(values, v);
    for (size_t l = 0; l < n; ++l) __builtin_memcpy(out + l * stride * 4, &values[l], 4);
  }
}

static void kv_append(const KvLayer& kv, const int32_t* block_table, size_t first_position,
                      size_t rows, const float* k, const float* v) {
  const size_t head_dim = kv.head_dim;
  const size_t k_bytes = kv.k_half ? 2 : 4;
  const size_t v_bytes = kv.v_half ? 2 : 4;
  for (size_t r = 0; r < rows; ++r) {
    const size_t position = first_position + r;
    const size_t tile = position / 16;
    const size_t lane = position % 16;
    const size_t block = static_cast<size_t>(block_table[tile / kv.block_tiles]);
    for (size_t h = 0; h < kv.kv_heads; ++h) {
      std::byte* head = kv.pool + block * kv.block_bytes + h * kv.head_bytes;
      const size_t tile_elements = tile % kv.block_tiles * 16 * head_dim;
      std::byte* k_at = head + (tile_elements + lane) * k_bytes;
      std::byte* v_at = head + kv.v_at + (tile_elements + lane * head_dim) * v_bytes;
      const size_t source = (r * kv.kv_heads + h) * head_dim;
      for (size_t d = 0; d < head_dim; d += 16) {
        const size_t n = min_of(16, head_dim - d);
        scatter(load_first(k + source + d, n), n, kv.k_half, 16, k_at + d * 16 * k_bytes);
        scatter(load_first(v + source + d, n), n, kv.v_half, 1, v_at + d * v_bytes);
      }
    }
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
