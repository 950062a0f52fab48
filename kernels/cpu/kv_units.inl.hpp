#pragma once

#include "kernels/cpu/codes.inl.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/vector_math.inl.hpp"

/// Units of cached keys and values (kernels/kv_codec.hpp): numbers as floats, codes as integers.
namespace outrider::kernels::OUTRIDER_ISA {

/// What numbers of a kind without scales are multiplied by where they are read. Queries and sums
/// make up for it: a power of two changes no other bit.
OUTRIDER_INLINE constexpr float read_factor(KvKind kind) {
  return kind == KvKind::fp8 ? 0x1p-8f : 1.0f;
}

/// 16 numbers of a kind without scales, times read_factor(kind).
template <KvKind kind>
OUTRIDER_INLINE Vec load_number(const std::byte* at) {
  static_assert(!kv_kind_info(kind).has_scales);
  if constexpr (kind == KvKind::fp32) return load(reinterpret_cast<const float*>(at));
  if constexpr (kind == KvKind::fp16) return load_half(at);
  if constexpr (kind == KvKind::bf16) return load_bfloat16(at);
  if constexpr (kind == KvKind::fp8) return load_e4m3(at);
}

/// The integers of a unit of a kind with scales, without scale, as pairs of 16 bits: pair i is
/// k = 2 i and 2 i + 1 of the 16 lanes. Pairs are asked for in ascending order.
template <KvKind kind>
struct CodeUnit {
  const std::byte* unit;
  const Lookup& book;
  Ints words = zero_ints();
  Ints tops = zero_ints();

  template <size_t i>
  [[gnu::always_inline]] Ints pair() {
    constexpr int n = static_cast<int>(i);
    if constexpr (kind == KvKind::q8_0) {
      if constexpr (n % 2 == 1) return shift_right_16<8, true>(words);
      words = load_ints(unit + n / 2 * 64);
      return shift_right_16<8, true>(shift_left_16<8>(words));
    } else if constexpr (kind == KvKind::q3) {
      if constexpr (n == 0) {
        words = load_ints(unit);
        tops = load_words(unit + 64);
        tops = tops | shift_left<8>(tops);
      }
      const Ints top = n < 2                    ? shift_left_16 < n < 2 ? 2 - n : 0 > (tops)
                                          : shift_right_16 < n < 2 ? 0
                                                : n - 2,
                 false > (tops);
      return book[select_16<3>(shift_right_16<2 * n, false>(words), top)];
    } else {
      if constexpr (n % 4 == 0) words = load_ints(unit + n / 4 * 64);
      if constexpr (kind == KvKind::nf4) return book[shift_right_16<n % 4 * 4, false>(words)];
      return shift_right_16<12, true>(shift_left_16<12 - n % 4 * 4>(words));
    }
  }
};

OUTRIDER_INLINE void fetch(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
}

/// A tile of a kind without scales, to be read as floats.
struct KvTileJob {
  const std::byte* tile;
  size_t units;
  float* out;
  size_t stride;           ///< from one unit in out to the next
  const std::byte* ahead;  ///< Wanted soon: fetched bit by bit.
  size_t ahead_bytes;
};

template <KvKind kind>
static void decode_tile(const KvTileJob& job) {
  constexpr size_t unit_bytes = kv_kind_info(kind).unit_bytes();
  const size_t ahead_step = (job.ahead_bytes + job.units - 1) / job.units;
  for (size_t u = 0; u < job.units; ++u) {
    fetch(job.ahead + u * ahead_step, ahead_step);
    const std::byte* unit = job.tile + u * unit_bytes;
    float* to = job.out + u * job.stride;
    for (size_t k = 0; k < 16; ++k) {
      store(to + 16 * k, load_number<kind>(unit + k * (unit_bytes / 16)));
    }
  }
}

template <KvKind value>
struct KvKindIs {
  static constexpr KvKind kind = value;
};
/// call(KvKindIs<kind>{}), for kinds without scales.
template <class Call>
OUTRIDER_INLINE void with_number_kind(KvKind kind, Call call) {
  if (kind == KvKind::fp16) return call(KvKindIs<KvKind::fp16>{});
  if (kind == KvKind::bf16) return call(KvKindIs<KvKind::bf16>{});
  if (kind == KvKind::fp8) return call(KvKindIs<KvKind::fp8>{});
  call(KvKindIs<KvKind::fp32>{});
}
/// Likewise, for kinds with scales.
template <class Call>
OUTRIDER_INLINE void with_code_kind(KvKind kind, Call call) {
  if (kind == KvKind::q8_0) return call(KvKindIs<KvKind::q8_0>{});
  if (kind == KvKind::q4_0) return call(KvKindIs<KvKind::q4_0>{});
  if (kind == KvKind::nf4) return call(KvKindIs<KvKind::nf4>{});
  call(KvKindIs<KvKind::q3>{});
}

}  // namespace outrider::kernels::OUTRIDER_ISA
