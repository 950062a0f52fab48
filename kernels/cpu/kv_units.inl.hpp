#pragma once

#include "kernels/cpu/codes.inl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/vector_math.inl.hpp"

/// Units of cached keys and values (kernels/kv_codec.hpp) as floats.
namespace outrider::kernels::OUTRIDER_ISA {

/// The numbers of one unit, without scale: row<k>() is [16 lanes]. k is asked for in ascending
/// order.
template <KvKind kind>
struct KvUnit {
  const std::byte* unit;
  const Lookup& book;
  Ints words = zero_ints();

  template <size_t k>
  [[gnu::always_inline]] Vec row() {
    if constexpr (kind == KvKind::fp32) {
      return load(reinterpret_cast<const float*>(unit) + 16 * k);
    } else if constexpr (kind == KvKind::fp16) {
      return load_half(unit + 32 * k);
    } else if constexpr (kind == KvKind::bf16) {
      return load_bfloat16(unit + 32 * k);
    } else if constexpr (kind == KvKind::fp8) {
      return load_e4m3(unit + 16 * k);
    } else if constexpr (kind == KvKind::q8_0) {
      return load_int8(unit + 16 * k);
    } else if constexpr (kind == KvKind::q3) {
      if constexpr (k == 15) return book[last_code()];
      if constexpr (k % 5 == 0) words = load_words(unit + k / 5 * 32);
      return book[shift_right<k % 5 * 3>(words)];
    } else {
      if constexpr (k % 8 == 0) words = load_ints(unit + k / 8 * 64);
      return book[shift_right<k % 8 * 4>(words)];
    }
  }

 private:
  [[gnu::always_inline]] Ints last_code() const {
    const Ints low = shift_right<15>(load_words(unit));
    const Ints middle = shift_left<1>(shift_right<15>(load_words(unit + 32)));
    const Ints high = shift_left<2>(shift_right<15>(load_words(unit + 64)));
    return low | middle | high;
  }
};

OUTRIDER_INLINE void fetch(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/// A tile to be read as floats.
struct KvTileJob {
  KvKind kind;
  const std::byte* tile;
  size_t units;
  const float* codebook;
  float* out;
  size_t stride;           ///< from one unit in out to the next
  const std::byte* ahead;  ///< Wanted soon: fetched bit by bit.
  size_t ahead_bytes;
};

template <KvKind kind, KvTensor tensor>
static void decode_tile(const KvTileJob& job) {
  constexpr size_t unit_bytes = kv_kind_info(kind).unit_bytes();
  constexpr bool has_scales = kv_kind_info(kind).has_scales;
  const Lookup book(job.codebook);
  const size_t ahead_step = (job.ahead_bytes + job.units - 1) / job.units;
  alignas(64) float scales[16];
  for (size_t u = 0; u < job.units; ++u) {
    fetch(job.ahead + u * ahead_step, ahead_step);
    KvUnit<kind> unit{job.tile + u * unit_bytes, book};
    Vec scale = zero();
    if constexpr (has_scales) {
      scale = load_half(job.tile + job.units * unit_bytes + u / 2 * 32);
      if constexpr (tensor == KvTensor::values) store(scales, scale);
    }
    float* to = job.out + u * job.stride;
    unroll<16>([&](auto k) __attribute__((always_inline)) {
      Vec row = unit.template row<k.value>();
      if constexpr (has_scales && tensor == KvTensor::keys) row = row * scale;
      if constexpr (has_scales && tensor == KvTensor::values) {
        row = row * broadcast(scales[k.value]);
      }
      store(to + 16 * k.value, row);
    });
  }
}

template <KvTensor tensor>
static void decode_tile(const KvTileJob& job) {
  switch (job.kind) {
    case KvKind::fp32:
      return decode_tile<KvKind::fp32, tensor>(job);
    case KvKind::fp16:
      return decode_tile<KvKind::fp16, tensor>(job);
    case KvKind::bf16:
      return decode_tile<KvKind::bf16, tensor>(job);
    case KvKind::fp8:
      return decode_tile<KvKind::fp8, tensor>(job);
    case KvKind::q8_0:
      return decode_tile<KvKind::q8_0, tensor>(job);
    case KvKind::q4_0:
    case KvKind::nf4:  // The book says which.
      return decode_tile<KvKind::q4_0, tensor>(job);
    case KvKind::q3:
      return decode_tile<KvKind::q3, tensor>(job);
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
