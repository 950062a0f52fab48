#pragma once

#include "kernels/cuda/kv_tiles.hpp"

/// Tiles of keys and values (kernels/kv_codec.hpp) as halves, in the order in which mma.m16n8k16
/// takes its second matrix.
///
/// A unit of 16 k and 16 columns (of keys k is an element and the column a position, of values the
/// other way round) makes two such matrices of 8 columns: column n of the first is the unit's 2 n,
/// of the second 2 n + 1. Of lane l, with g = l % 4, slot e = 0 … 3 (mma's own k 2 g, 2 g + 1,
/// 2 g + 8, 2 g + 9) is the unit's k = 4 g + e; of kinds whose numbers stand alone
/// 4 g + (g + e) % 4, so that the lanes that read a slot meet in no bank.
namespace outrider::kernels::cuda {

/// Kinds whose codes are exact in half precision. Numbers with a scale are code * scale, rounded
/// once to half precision; behind 65504 that is an infinity.
constexpr bool fits_halves(KvKind kind) {
  return kind != KvKind::fp32 && kind != KvKind::bf16;
}

/// Whose numbers stand alone, not as codes in words.
template <KvKind kind>
inline constexpr bool stands_alone = !kind_has_scales(kind);

/// Calls use.template operator()<kind>() for those that fit halves.
template <class Use>
OUTRIDER_KERNEL void with_half_kind(KvKind kind, const Use& use) {
  switch (kind) {
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
    default:
      return use.template operator()<KvKind::fp16>();
  }
}

/// Whether slots go round: not of kinds with scales, whose words hold neighbouring k.
OUTRIDER_KERNEL uint32_t k_of_slot(bool round, uint32_t g, uint32_t e) {
  return 4 * g + (round ? (g + e) % 4 : e);
}
OUTRIDER_KERNEL uint32_t slot_of_k(bool round, uint32_t k) {
  return (round ? k + 4 - k / 4 : k) % 4;
}

/// Four neighbouring slots of the first matrix of mma, in order, go round as those of the second.
OUTRIDER_KERNEL void go_round(uint32_t g, uint32_t& first, uint32_t& second) {
  // Pair of slots (i, i + 1) from i = 0, 1, 2, 3 on.
  const uint32_t selectors = g % 2 == 0 ? 0x76543210u : 0x10765432u;
  const uint32_t low = selectors >> (g / 2 * 16) & 0xFFFF;
  const uint32_t high = selectors >> (16 - g / 2 * 16) & 0xFFFF;
  const uint32_t given = first;
  first = permute_bytes(given, second, low);
  second = permute_bytes(given, second, high);
}

/// The bits 15 and 31 of halves that are no finite numbers.
OUTRIDER_KERNEL uint32_t odd_halves(uint32_t pair) {
  return ((pair & 0x7C007C00u) + 0x04000400u) & 0x80008000u;
}
/// Zero in place of such.
OUTRIDER_KERNEL uint32_t finite_halves(uint32_t pair) {
  return pair & ~((odd_halves(pair) >> 15) * 0xFFFFu);
}

/// Two codes of e4m3, each in the high byte of 16 bits.
OUTRIDER_KERNEL uint32_t e4m3_as_half2(uint32_t codes) {
  constexpr uint32_t k_256 = 0x5C005C00u;  // the exponents' biases differ by 8
  return multiply_half2((codes & 0x80008000u) | (codes & 0x7F007F00u) >> 1, k_256);
}

/// What a book of 16 bytes has for four nibbles.
OUTRIDER_KERNEL uint32_t bytes_of_book(const int8_t* book, uint32_t nibbles) {
  const uint32_t eight = nibbles & 0x7777;
  const uint32_t low = permute_bytes(load_as<uint32_t>(book), load_as<uint32_t>(book + 4), eight);
  const uint32_t high =
      permute_bytes(load_as<uint32_t>(book + 8), load_as<uint32_t>(book + 12), eight);
  return permute_bytes(low, high, 0x3210 + ((nibbles & 0x8888) >> 1));
}

/// Codes of the slots 0, 1 and 2, 3 of one column, from the word that has them; q3's third bits
/// stand in `thirds`. 0x6400 is 1024, whose lowest bit counts ones: with a code's bits there it is
/// 1024 + code.
template <KvKind kind>
OUTRIDER_KERNEL void code_pairs(const int8_t* book, uint32_t word, uint32_t thirds, uint32_t g,
                                uint32_t* pairs) {
  constexpr uint32_t k_1024 = 0x64006400u;
  if constexpr (kind == KvKind::q4_0) {
    const uint32_t nibbles = (word ^ 0x88888888u) >> (g % 2 * 8);
    pairs[0] = subtract_half2(and_or(nibbles, 0x000F000Fu, k_1024), k_1024 + 0x00080008u);
    pairs[1] = subtract_half2(and_or(nibbles >> 4, 0x000F000Fu, k_1024), k_1024 + 0x00080008u);
    return;
  }
  uint32_t bytes = word;  // slots 0, 2, 1, 3
  if constexpr (kind == KvKind::nf4) {
    bytes = bytes_of_book(book, permute_bytes(word, 0, 0x4420u + g % 2 * 0x11u));
  } else if constexpr (kind == KvKind::q3) {
    const uint32_t low = word >> (4 * g), high = spread_bytes(thirds, 0, 0) >> (2 * g);
    const uint32_t codes = (low & 0x00030003u) | (low & 0x000C000Cu) << 2 |
                           (high & 0x00010001u) << 2 | (high & 0x00020002u) << 5;
    bytes = bytes_of_book(book, permute_bytes(codes, 0, 0x4420u));
  }
  bytes ^= 0x80808080u;
  pairs[0] = subtract_half2(and_or(bytes, 0x00FF00FFu, k_1024), k_1024 + 0x00800080u);
  pairs[1] = subtract_half2(and_or(bytes >> 8, 0x00FF00FFu, k_1024), k_1024 + 0x00800080u);
}

/// A lane's shares of a unit's two matrices. The tile stands `tile` bytes behind the start of
/// shared memory.
template <KvKind kind, bool of_values, class Shared>
OUTRIDER_KERNEL void unit_fragments(const KvTiles& tiles, const Shared& memory, uint32_t tile,
                                    uint32_t unit, uint32_t lane, uint32_t (&b)[2][2]) {
  const uint32_t at = tile + unit * tiles.unit_bytes;
  const uint32_t n = lane / 4, g = lane % 4;
  if constexpr (stands_alone<kind>) {
    uint32_t both[4];  // columns 2 n and 2 n + 1 of each slot
    OUTRIDER_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t k = k_of_slot(true, g, e);
      if constexpr (kind == KvKind::fp8) {
        both[e] = memory.template load_as_type<uint16_t>(at + k * 16 + n * 2);
      } else {
        both[e] = memory.template load_as_type<uint32_t>(at + k * 32 + n * 4);
      }
    }
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      if constexpr (kind == KvKind::fp8) {
        b[0][i] = e4m3_as_half2(permute_bytes(both[2 * i], both[2 * i + 1], 0x4202));
        b[1][i] = e4m3_as_half2(permute_bytes(both[2 * i], both[2 * i + 1], 0x5212));
      } else {
        b[0][i] = permute_bytes(both[2 * i], both[2 * i + 1], 0x5410);
        b[1][i] = permute_bytes(both[2 * i], both[2 * i + 1], 0x7632);
      }
    }
  } else {
    constexpr uint32_t k_word_k = kind == KvKind::q8_0 ? 4 : kind == KvKind::q3 ? 16 : 8;
    const auto words = memory.template load_as_type<Words2>(at + 4 * g / k_word_k * 64 + n * 8);
    uint32_t thirds = 0;
    if constexpr (kind == KvKind::q3) {
      thirds = memory.template load_as_type<uint32_t>(at + 64 + n * 4);
    }
    OUTRIDER_UNROLL
    for (uint32_t column = 0; column < 2; ++column) {
      code_pairs<kind>(tiles.book, words.w[column], thirds >> (16 * column) & 0xFFFF, g, b[column]);
    }
    const uint32_t scales = tile + tiles.scales_at + unit / 2 * 32;
    if constexpr (of_values) {  // of positions 4 g … 4 g + 3, which are k
      const auto four = memory.template load_as_type<Words2>(scales + g * 8);
      OUTRIDER_UNROLL
      for (uint32_t column = 0; column < 2; ++column) {
        b[column][0] = multiply_half2(b[column][0], four.w[0]);
        b[column][1] = multiply_half2(b[column][1], four.w[1]);
      }
    } else {  // of positions 2 n and 2 n + 1, the columns
      const auto two = memory.template load_as_type<uint32_t>(scales + n * 4);
      OUTRIDER_UNROLL
      for (uint32_t column = 0; column < 2; ++column) {
        const uint32_t scale = permute_bytes(two, two, column == 0 ? 0x1010 : 0x3232);
        b[column][0] = multiply_half2(b[column][0], scale);
        b[column][1] = multiply_half2(b[column][1], scale);
      }
    }
  }
}

}  // namespace outrider::kernels::cuda
