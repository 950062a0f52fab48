#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/vector_math.inl.hpp"
#include "kernels/kv_codec.hpp"

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

/// x * (1 / sqrt(d)), then butterflies (a, b) -> (a + b, a - b) of elements that are 1, 2, 4, … d/2
/// apart, each pair its lower index first.
static void hadamard(size_t d, float* x) {
  const Vec scale = broadcast(1.0f / __builtin_sqrtf(static_cast<float>(d)));
  for (size_t i = 0; i < d; i += 16) {
    const size_t n = min_of(16, d - i);  // Of shorter heads the other lanes are zeros.
    Vec v = load_first(x + i, n) * scale;
    v = butterfly<8>(butterfly<4>(butterfly<2>(butterfly<1>(v))));
    store_first(x + i, v, n);
  }
  for (size_t apart = 16; apart < d; apart *= 2) {
    for (size_t first = 0; first < d; first += 2 * apart) {
      for (size_t i = first; i < first + apart; i += 16) {
        const Vec a = load(x + i);
        const Vec b = load(x + i + apart);
        store(x + i, a + b);
        store(x + i + apart, a - b);
      }
    }
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

/// The head's numbers of one position into a tile of fp16 or fp32.
template <KvTensor tensor, bool half>
static void store_floats(const float* x, size_t head_dim, size_t position, std::byte* tile) {
  constexpr size_t size = half ? 2 : 4;
  for (size_t d = 0; d < head_dim; d += 16, tile += 256 * size) {
    const size_t n = min_of(16, head_dim - d);
    alignas(64) std::byte numbers[64];
    if constexpr (half) {
      store_half(numbers, load_first(x + d, n));
    } else {
      store(reinterpret_cast<float*>(numbers), load_first(x + d, n));
    }
    if constexpr (tensor == KvTensor::values) {
      __builtin_memcpy(tile + position * 16 * size, numbers, 16 * size);
    } else {
      for (size_t k = 0; k < n; ++k) {
        __builtin_memcpy(tile + (k * 16 + position) * size, numbers + k * size, size);
      }
    }
  }
}

template <KvTensor tensor>
static void store_head(KvKind kind, const float* x, size_t head_dim, size_t position,
                       std::byte* tile) {
  if (kind == KvKind::fp16) return store_floats<tensor, true>(x, head_dim, position, tile);
  if (kind == KvKind::fp32) return store_floats<tensor, false>(x, head_dim, position, tile);
  kv_store(kind, tensor, head_dim, position, x, tile);
}

static void kv_append(const KvLayer& kv, const int32_t* block_table, size_t first_position,
                      size_t rows, const float* k, const float* v) {
  for (size_t r = 0; r < rows; ++r) {
    const size_t position = first_position + r;
    const size_t tile = position / 16;
    const size_t block = static_cast<size_t>(block_table[tile / kv.block_tiles]);
    for (size_t h = 0; h < kv.kv_heads; ++h) {
      std::byte* head = kv.pool + block * kv.block_bytes + h * kv.head_bytes;
      std::byte* keys = head + tile % kv.block_tiles * kv.k_tile_bytes;
      std::byte* values = head + kv.v_at + tile % kv.block_tiles * kv.v_tile_bytes;
      const size_t source = (r * kv.kv_heads + h) * kv.head_dim;
      store_head<KvTensor::keys>(kv.k_kind, k + source, kv.head_dim, position % 16, keys);
      store_head<KvTensor::values>(kv.v_kind, v + source, kv.head_dim, position % 16, values);
    }
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
