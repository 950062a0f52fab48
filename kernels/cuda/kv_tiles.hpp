#pragma once

#include "kernels/cuda/portable.hpp"
#include "kernels/kv_kind.hpp"

/// Tiles of keys and values (kernels/kv_codec.hpp): numbers in, numbers out, the same bytes and
/// floats as there.
namespace outrider::kernels::cuda {

/// What kernels know of a tensor's tiles.
struct KvTiles {
  KvKind kind = KvKind::fp16;
  bool has_scales = false;
  uint32_t unit_bytes = 0;
  uint32_t tile_bytes = 0;
  uint32_t scales_at = 0;  ///< in a tile
  int8_t book[16] = {};    ///< integers of nf4 and q3
};

/// And of a pool, at one layer.
struct KvPool {
  std::byte* layer = nullptr;  ///< the layer in block 0
  size_t block_bytes = 0;
  size_t head_bytes = 0;  ///< keys and values
  size_t values_at = 0;   ///< behind a head's keys
  uint32_t block_tiles = 0;
  uint32_t head_dim = 0;
  KvTiles of[2];  ///< keys, values

  /// Tile of a head, by its number in its sequence.
  OUTRIDER_KERNEL std::byte* tile(const int32_t* table, uint32_t number, uint32_t kv_head,
                                  bool values) const {
    const auto block = static_cast<size_t>(table[number / block_tiles]);
    return layer + block * block_bytes + kv_head * head_bytes + (values ? values_at : 0) +
           size_t{number % block_tiles} * of[values ? 1 : 0].tile_bytes;
  }
};

OUTRIDER_KERNEL float from_e4m3(uint32_t code) {
  return float_of((code & 0x7F) << 20 | (code & 0x80) << 24) * 0x1p120f;
}

/// To the nearest, ties to even; |x| < 2^22.
OUTRIDER_KERNEL int32_t nearest_integer(float x) {
  return static_cast<int32_t>(bits_of(x + 0x1.8p23f) - bits_of(0x1.8p23f));
}

OUTRIDER_KERNEL float magnitude(float x) {
  return float_of(bits_of(x) & 0x7FFFFFFFu);
}

/// Sign, four bits of exponent, three of fraction; ends at 448. Of any NaN: 1.5, as the CPU's of
/// its own, which are not a GPU's.
OUTRIDER_KERNEL uint32_t to_e4m3(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t sign = bits >> 24 & 0x80;
  if (value != value) return sign | 0x3C;
  const float size = magnitude(value) > 448.0f ? 448.0f : magnitude(value);
  if (size < 0x1p-6f) return sign | static_cast<uint32_t>(nearest_integer(size * 512.0f));
  uint32_t rounded = bits_of(size);
  rounded += 0x7FFFF + (rounded >> 20 & 1);
  return (sign | ((rounded >> 20) - (120u << 3))) & 0xFF;
}

OUTRIDER_KERNEL uint16_t to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/// Where the bits of code k stand in its lane's words of 32, of codes with so many bits there.
struct CodeAt {
  uint32_t word, shift;
};
OUTRIDER_KERNEL CodeAt code_at(uint32_t bits, uint32_t k) {
  const uint32_t pairs = 16 / bits;
  return {k / 2 / pairs, k % 2 * 16 + k / 2 % pairs * bits};
}
OUTRIDER_KERNEL uint32_t word_bits(KvKind kind) {
  return kind == KvKind::q8_0 ? 8 : kind == KvKind::q3 ? 2 : 4;
}
OUTRIDER_KERNEL uint32_t third_bit_at(uint32_t k) {
  return k % 2 * 8 + k / 2;
}

/// Calls use.template operator()<kind>().
template <class Use>
OUTRIDER_KERNEL void with_kv_kind(KvKind kind, const Use& use) {
  switch (kind) {
    case KvKind::fp32:
      return use.template operator()<KvKind::fp32>();
    case KvKind::fp16:
      return use.template operator()<KvKind::fp16>();
    case KvKind::bf16:
      return use.template operator()<KvKind::bf16>();
    case KvKind::fp8:
      return use.template operator()<KvKind::fp8>();
    case KvKind::q8_0:
      return use.template operator()<KvKind::q8_0>();
    case KvKind::q4_0:
      return use.template operator()<KvKind::q4_0>();
    case KvKind::nf4:
      return use.template operator()<KvKind::nf4>();
    case KvKind::q3:
      return use.template operator()<KvKind::q3>();
  }
}

constexpr bool kind_has_scales(KvKind kind) {
  return kind == KvKind::q8_0 || kind == KvKind::q4_0 || kind == KvKind::nf4 || kind == KvKind::q3;
}

/// Number k of a lane of the unit `unit` bytes behind the start of shared memory; its scale, if its
/// kind has them, is the half at `scale`.
template <KvKind kind, class Shared>
OUTRIDER_KERNEL float unit_number(const KvTiles& tiles, const Shared& memory, uint32_t unit,
                                  uint32_t k, uint32_t lane, uint32_t scale) {
  const uint32_t index = k * 16 + lane;
  if constexpr (kind == KvKind::fp32) {
    return float_of(memory.template load_as_type<uint32_t>(unit + 4 * index));
  } else if constexpr (kind == KvKind::fp16) {
    return half_as_float(memory.template load_as_type<uint16_t>(unit + 2 * index));
  } else if constexpr (kind == KvKind::bf16) {
    return float_of(uint32_t{memory.template load_as_type<uint16_t>(unit + 2 * index)} << 16);
  } else if constexpr (kind == KvKind::fp8) {
    return from_e4m3(memory.template load_as_type<uint8_t>(unit + index));
  } else {
    const uint32_t bits = word_bits(kind);
    const CodeAt at = code_at(bits, k);
    const auto word = memory.template load_as_type<uint32_t>(unit + at.word * 64 + 4 * lane);
    const uint32_t code = word >> at.shift & ((1u << bits) - 1);
    int32_t integer = 0;
    if constexpr (kind == KvKind::q8_0) {
      integer = static_cast<int8_t>(code);
    } else if constexpr (kind == KvKind::q4_0) {
      integer = static_cast<int32_t>(code ^ 8u) - 8;
    } else if constexpr (kind == KvKind::nf4) {
      integer = tiles.book[code];
    } else {
      const auto thirds = memory.template load_as_type<uint16_t>(unit + 64 + 2 * lane);
      integer = tiles.book[code | (uint32_t{thirds} >> third_bit_at(k) & 1) << 2];
    }
    return static_cast<float>(integer) *
           half_as_float(memory.template load_as_type<uint16_t>(scale));
  }
}

/// 32 numbers' scale in half precision, and by what to multiply to get the codes: 0 where all
/// codes are 0 or the scale cannot be stored.
struct GroupScale {
  uint16_t half = 0;
  bool empty = false;  ///< a number was none: all codes are 0
  float inverse = 0;
};

OUTRIDER_KERNEL GroupScale group_scale(float scale) {
  GroupScale out;
  out.half = float_as_half(scale);
  const float stored = half_as_float(out.half);
  if (!(magnitude(stored) < float_of(0x7F800000u))) {
    out.half = 0x7E00;
  } else if (stored != 0) {
    out.inverse = 1.0f / stored;
  }
  return out;
}

/// Of the numbers x[0 … count - 1] of one position; those behind are zeros.
OUTRIDER_KERNEL GroupScale scale_of_group(KvKind kind, const float* x, uint32_t count) {
  float largest = 0;
  bool finite = true, positive = false;
  for (uint32_t i = 0; i < count; ++i) {
    const float size = magnitude(x[i]);
    finite = finite && size < float_of(0x7F800000u);
    largest = size > largest ? size : largest;
  }
  if (!finite) return {0x7E00, true, 0};
  if (kind != KvKind::q4_0) return group_scale(largest / 127.0f);
  for (uint32_t i = 0; i < count; ++i) positive = positive || x[i] == largest;
  return group_scale((positive ? largest : -largest) / -8.0f);
}

/// The code of a number, as it stands in words.
OUTRIDER_KERNEL uint32_t code_of(const KvTiles& tiles, float x, const GroupScale& scale) {
  if (scale.empty) return 0;
  const float value = x * scale.inverse;
  if (tiles.kind == KvKind::q8_0) {
    const float code = value < -127.0f ? -127.0f : value > 127.0f ? 127.0f : value;
    return static_cast<uint32_t>(nearest_integer(code)) & 0xFF;
  }
  if (tiles.kind == KvKind::q4_0) {
    const float code = value < -8.0f ? -8.0f : value > 7.0f ? 7.0f : value;
    return static_cast<uint32_t>(nearest_integer(code)) & 15;
  }
  const uint32_t levels = tiles.kind == KvKind::nf4 ? 16 : 8;
  uint32_t code = 0;
  for (uint32_t l = 1; l < levels; ++l) {
    code += 2.0f * value > static_cast<float>(tiles.book[l - 1] + tiles.book[l]) ? 1 : 0;
  }
  return code;
}

}  // namespace outrider::kernels::cuda
