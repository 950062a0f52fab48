#pragma once

#include "kernels/cuda/portable.hpp"
#include "kernels/weight_kind.hpp"

/// Weights as the device reads them: units of 16 outputs and 64 k, in the file's own bits, laid out
/// so that each lane of a warp reads whole words and has in them what it feeds to mma.m16n8k16.
///
/// In a unit, lane l holds the weights of the outputs h (0: l / 4, 1: l / 4 + 8) at, for each group
/// g of 32 k and each step s of 16, k = 32 g + 16 s + 4 (l % 4) + {0, 1, 2, 3}; e = 4 s + the last
/// counts them from 0 to 7. Planes of a matrix, each [tiles of 16 outputs][units]:
///   codes   [chunks][32 lanes][16 bytes]
///             4 bits:  word 2 g + h; nibble e / 2 + 4 (e % 2)
///             8 bits:  chunk g, word 2 h + e / 4, byte e % 4; plus 128
///             16 bits: chunk 2 g + h, half e
///             32 bits: chunk 4 g + 2 h + e / 4, word e % 4
///   high    [32 lanes][4 bytes of fifth bits: byte 2 g + h, bit e / 2 + 4 (e % 2)
///             | 8 bytes of pairs above 4 bits: 16 bits 2 g + h, two at 2 (e / 2 + 4 (e % 2))]
///   scales  [16 outputs][2 g][half d | half d, half m | byte scale, byte minimum], or of Q6_K
///             [16 outputs][4 steps] signed bytes
///   tops    [16 outputs] of each 4 units: half d, half m | half d
///   row_scales  [tiles][16 outputs] float: a power of two; F16 has none
/// A weight is (code * scale + offset) * row scale, where the code is what stands there less
/// `zero`, and d and m are the file's over the row scale, which is so chosen that no weight of the
/// row is beyond halves. Wider floats stand there as they are.
namespace outrider::kernels::cuda {

inline constexpr uint32_t k_tile_outputs = 16;
inline constexpr uint32_t k_unit_k = 64;
inline constexpr uint32_t k_chunk_bytes = 512;

enum class Tops : uint8_t { none, pairs, singles };

struct UnitCoding {
  uint32_t chunks = 1;     ///< of codes in a unit
  uint32_t high_bits = 0;  ///< of a code in the high plane
  uint32_t zero = 0;
  bool is_float = false;
  bool is_wide = false;     ///< floats that are no halves: scaled by row while they become some
  bool sixteenths = false;  ///< a scale for 16 k, else for 32
  bool offsets = false;
  uint32_t scale_bytes = 0;  ///< of one output in a unit
  Tops tops = Tops::none;
};

constexpr UnitCoding unit_coding(WeightType type) {
  switch (type) {
    case WeightType::q4_0:
      return {1, 0, 8, false, false, false, false, 4, Tops::none};
    case WeightType::q4_1:
      return {1, 0, 0, false, false, false, true, 8, Tops::none};
    case WeightType::q5_0:
      return {1, 1, 16, false, false, false, false, 4, Tops::none};
    case WeightType::q5_1:
      return {1, 1, 0, false, false, false, true, 8, Tops::none};
    case WeightType::q8_0:
      return {2, 0, 128, false, false, false, false, 4, Tops::none};
    case WeightType::q4_k:
      return {1, 0, 0, false, false, false, true, 4, Tops::pairs};
    case WeightType::q5_k:
      return {1, 1, 0, false, false, false, true, 4, Tops::pairs};
    case WeightType::q6_k:
      return {1, 2, 32, false, false, true, false, 4, Tops::singles};
    case WeightType::f16:
      return {4, 0, 0, true, false, false, false, 0, Tops::none};
    case WeightType::bf16:
      return {4, 0, 0, true, true, false, false, 0, Tops::none};
    case WeightType::f32:
      break;
  }
  return {8, 0, 0, true, true, false, false, 0, Tops::none};
}

constexpr uint32_t high_bytes(const UnitCoding& coding) {
  return coding.high_bits * 128;
}
constexpr uint32_t top_bytes(const UnitCoding& coding) {
  return coding.tops == Tops::singles ? 32 : coding.tops == Tops::none ? 0 : 64;
}

/// A packed matrix in device memory.
struct MatrixView {
  const std::byte* codes = nullptr;
  const std::byte* high = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* tops = nullptr;
  const float* row_scales = nullptr;
  uint32_t outputs = 0;
  uint32_t tiles = 0;
  uint32_t units = 0;
};

/// What a power of two to multiply numbers of this largest magnitude (its bits) by brings it to
/// [2^14, 2^15), as far as powers of two reach: then halves hold them. Its inverse, the same way.
/// For an infinity or NaN 1.
OUTRIDER_KERNEL int32_t half_exponent(uint32_t largest_bits) {
  if (largest_bits >= 0x7F800000u) return 0;
  return least(126, 141 - static_cast<int32_t>(largest_bits >> 23));
}

/// Where a lane's shares of a tile's units begin.
template <WeightType type>
struct LaneTile {
  static constexpr UnitCoding k_coding = unit_coding(type);
  // Bytes of a unit in each plane; of four units in the last.
  static constexpr uint32_t k_codes_bytes = k_coding.chunks * k_chunk_bytes;
  static constexpr uint32_t k_high_bytes = high_bytes(k_coding);
  static constexpr uint32_t k_scales_bytes = k_tile_outputs * k_coding.scale_bytes;
  static constexpr uint32_t k_unit_bytes = k_codes_bytes + k_high_bytes + k_scales_bytes;
  static constexpr uint32_t k_tops_bytes = top_bytes(k_coding);

  const std::byte* codes = nullptr;
  const std::byte* high = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* tops = nullptr;
  const float* row_scales = nullptr;

  LaneTile() = default;
  OUTRIDER_KERNEL LaneTile(const MatrixView& w, uint32_t tile, uint32_t lane) {
    const size_t unit = size_t{tile} * w.units;
    const uint32_t output = lane / 4;
    codes = w.codes + unit * k_codes_bytes + lane * 16;
    high = w.high + unit * k_high_bytes + lane * (k_coding.high_bits * 4);
    scales = w.scales + (unit * k_tile_outputs + output) * k_coding.scale_bytes;
    if constexpr (k_coding.tops != Tops::none) {
      tops = w.tops + (size_t{tile} * (w.units / 4) * k_tile_outputs + output) *
                          (k_tops_bytes / k_tile_outputs);
    }
    if constexpr (k_coding.is_wide) row_scales = w.row_scales + tile * k_tile_outputs + output;
  }

  template <class T>
  OUTRIDER_KERNEL T codes_at(size_t bytes) const {
    return load_as<T>(codes + bytes);
  }
  template <class T>
  OUTRIDER_KERNEL T high_at(size_t bytes) const {
    return load_as<T>(high + bytes);
  }
  template <class T>
  OUTRIDER_KERNEL T scales_at(size_t bytes) const {
    return load_as<T>(scales + bytes);
  }
  template <class T>
  OUTRIDER_KERNEL T tops_at(size_t bytes) const {
    return load_as<T>(tops + bytes);
  }
  OUTRIDER_KERNEL float row_scale(uint32_t h) const { return row_scales[8 * h]; }
};

/// The same for units that were copied to shared memory, plane behind plane; the last one holds
/// the row scales of the tiles that the units are of.
template <WeightType type, class Shared>
struct SharedTile {
  using Plane = LaneTile<type>;

  const Shared& memory;
  uint32_t codes, high, scales, tops, row_scales;

  /// Bytes of `units` units, a multiple of 4, of at most so many tiles.
  OUTRIDER_ALSO_KERNEL static constexpr uint32_t bytes(uint32_t units, uint32_t tiles) {
    return units * Plane::k_unit_bytes + units / 4 * Plane::k_tops_bytes +
           (Plane::k_coding.is_wide ? tiles * k_tile_outputs * 4 : 0);
  }

  /// Planes of `units` units begin `at` bytes behind the start of `memory`; unit `first` of them,
  /// of tile `tile` of them, is the lane's first.
  OUTRIDER_KERNEL SharedTile(const Shared& planes, uint32_t at, uint32_t units, uint32_t tile,
                             uint32_t first, uint32_t lane)
      : memory(planes),
        codes(at + first * Plane::k_codes_bytes + lane * 16),
        high(at + units * Plane::k_codes_bytes + first * Plane::k_high_bytes +
             lane * (Plane::k_coding.high_bits * 4)),
        scales(at + units * (Plane::k_codes_bytes + Plane::k_high_bytes) +
               first * Plane::k_scales_bytes + lane / 4 * Plane::k_coding.scale_bytes),
        tops(at + units * Plane::k_unit_bytes + first / 4 * Plane::k_tops_bytes +
             lane / 4 * (Plane::k_tops_bytes / k_tile_outputs)),
        row_scales(at + bytes(units, 0) + (tile * k_tile_outputs + lane / 4) * 4) {}
  template <class T>
  OUTRIDER_KERNEL T codes_at(size_t bytes) const {
    return memory.template load_as_type<T>(codes + bytes);
  }
  template <class T>
  OUTRIDER_KERNEL T high_at(size_t bytes) const {
    return memory.template load_as_type<T>(high + bytes);
  }
  template <class T>
  OUTRIDER_KERNEL T scales_at(size_t bytes) const {
    return memory.template load_as_type<T>(scales + bytes);
  }
  template <class T>
  OUTRIDER_KERNEL T tops_at(size_t bytes) const {
    return memory.template load_as_type<T>(tops + bytes);
  }
  OUTRIDER_KERNEL float row_scale(uint32_t h) const {
    return memory.template load_as_type<float>(row_scales + 32 * h);
  }
};

/// One lane's share of a unit.
template <WeightType type>
struct LaneUnit {
  static constexpr UnitCoding k_coding = unit_coding(type);
  uint32_t codes[k_coding.chunks * 4];
  uint32_t high[2];
  uint32_t scales[2][2];  ///< [h]
  uint32_t tops[2];       ///< [h]: halves d and m
  float scale_up[2];      ///< [h]: what makes halves of wider floats

  /// From a LaneTile or a SharedTile.
  template <class Tile>
  OUTRIDER_KERNEL void read(const Tile& tile, uint32_t unit) {
    const size_t from = size_t{unit} * LaneTile<type>::k_codes_bytes;
    OUTRIDER_UNROLL
    for (uint32_t c = 0; c < k_coding.chunks; ++c) {
      const auto words = tile.template codes_at<Words4>(from + c * k_chunk_bytes);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 4; ++i) codes[4 * c + i] = words.w[i];
    }
    const size_t high_from = size_t{unit} * LaneTile<type>::k_high_bytes;
    if constexpr (k_coding.high_bits == 1) {
      high[0] = tile.template high_at<uint32_t>(high_from);
    } else if constexpr (k_coding.high_bits == 2) {
      const auto words = tile.template high_at<Words2>(high_from);
      high[0] = words.w[0];
      high[1] = words.w[1];
    }
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) read_scales(tile, unit, h);
  }

  /// A fragment of mma for step s of group g: weights over their row scales, rounded once if their
  /// scales are halves in the file, else these are rounded before.
  OUTRIDER_KERNEL void fragment(uint32_t g, uint32_t s, uint32_t* a) const {
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t codes_of_two = pair(g, h, 2 * s + i);
        if constexpr (type == WeightType::f16) {
          // Not a copy: ptxas would have weights land where tensor cores still read.
          a[2 * i + h] = multiply_half2(codes_of_two, 0x3C003C00u);
        } else if constexpr (k_coding.is_float) {
          a[2 * i + h] = codes_of_two;
        } else if constexpr (k_coding.offsets) {
          a[2 * i + h] = fused_half2(codes_of_two, scale_pair(g, s, h), offset_pair(g, h));
        } else {
          a[2 * i + h] = multiply_half2(codes_of_two, scale_pair(g, s, h));
        }
      }
    }
  }

  /// Weight e of output h and group g, of codes over its row scale; rounded once.
  OUTRIDER_KERNEL float weight(uint32_t g, uint32_t h, uint32_t e) const {
    if constexpr (type == WeightType::f32) {
      return float_of(codes[8 * (2 * g + h) + e]);
    } else if constexpr (type == WeightType::bf16) {
      const uint32_t both = codes[4 * (2 * g + h) + e / 2];
      return float_of(e % 2 == 0 ? both << 16 : both & 0xFFFF0000u);
    } else {
      const float code = half_as_float(static_cast<uint16_t>(pair(g, h, e / 2) >> (16 * (e % 2))));
      if constexpr (type == WeightType::f16) return code;
      const float scaled = code * scale(g, e / 4, h);
      if constexpr (k_coding.offsets) return scaled + offset(g, h);
      return scaled;
    }
  }

 private:
  OUTRIDER_KERNEL float scale(uint32_t g, uint32_t s, uint32_t h) const {
    if constexpr (k_coding.tops == Tops::pairs) {
      return half_as_float(static_cast<uint16_t>(tops[h])) *
             static_cast<float>(scales[h][0] >> (16 * g) & 0xFF);
    } else if constexpr (k_coding.tops == Tops::singles) {
      const auto code = static_cast<int8_t>(scales[h][0] >> (8 * (2 * g + s)) & 0xFF);
      return half_as_float(static_cast<uint16_t>(tops[h])) * static_cast<float>(code);
    } else {
      return half_as_float(static_cast<uint16_t>(scale_pair(g, s, h)));
    }
  }
  OUTRIDER_KERNEL float offset(uint32_t g, uint32_t h) const {
    if constexpr (k_coding.tops == Tops::pairs) {
      return half_as_float(static_cast<uint16_t>(tops[h] >> 16)) *
             static_cast<float>(scales[h][0] >> (16 * g + 8) & 0xFF);
    } else {
      return half_as_float(static_cast<uint16_t>(offset_pair(g, h)));
    }
  }

  /// Twice the half that codes of group g, step s and output h are multiplied by, and what is
  /// added.
  OUTRIDER_KERNEL uint32_t scale_pair(uint32_t g, uint32_t s, uint32_t h) const {
    if constexpr (k_coding.tops == Tops::pairs) {
      return twice(products_of_bytes(g, h), 0);
    } else if constexpr (k_coding.tops == Tops::singles) {
      return twice(products_of_bytes(g, h), s);
    } else if constexpr (k_coding.offsets) {
      return twice(scales[h][g], 0);
    } else {
      return twice(scales[h][0], g);
    }
  }
  OUTRIDER_KERNEL uint32_t offset_pair(uint32_t g, uint32_t h) const {
    if constexpr (k_coding.tops == Tops::pairs) {
      return twice(products_of_bytes(g, h), 1);
    } else {
      return twice(scales[h][g], 1);
    }
  }
  /// d and m times the two bytes of a group, or d times those of its two steps; each rounded once.
  OUTRIDER_KERNEL uint32_t products_of_bytes(uint32_t g, uint32_t h) const {
    constexpr bool k_signed = k_coding.tops == Tops::singles;
    const uint32_t bytes = k_signed ? scales[h][0] ^ 0x80808080u : scales[h][0];
    const uint32_t factors =
        subtract_half2(spread_bytes(bytes, g, 0x64646464u), k_signed ? 0x64806480u : 0x64006400u);
    return multiply_half2(factors, k_signed ? twice(tops[h], 0) : tops[h]);
  }

  template <class Tile>
  OUTRIDER_KERNEL void read_scales(const Tile& tile, uint32_t unit, uint32_t h) {
    const size_t at = size_t{unit} * LaneTile<type>::k_scales_bytes + 8 * h * k_coding.scale_bytes;
    if constexpr (k_coding.scale_bytes == 8) {
      const auto words = tile.template scales_at<Words2>(at);
      scales[h][0] = words.w[0];
      scales[h][1] = words.w[1];
    } else if constexpr (k_coding.scale_bytes == 4) {
      scales[h][0] = tile.template scales_at<uint32_t>(at);
    }
    const size_t of_four = size_t{unit / 4} * LaneTile<type>::k_tops_bytes;
    if constexpr (k_coding.tops == Tops::pairs) {
      tops[h] = tile.template tops_at<uint32_t>(of_four + 32 * h);
    } else if constexpr (k_coding.tops == Tops::singles) {
      tops[h] = tile.template tops_at<uint16_t>(of_four + 16 * h);
    }
    if constexpr (k_coding.is_wide) {
      scale_up[h] = float_of((254u << 23) - bits_of(tile.row_scale(h)));
    }
  }

  /// The codes e = 2 j and 2 j + 1 of output h as halves; of wider floats the weights.
  OUTRIDER_KERNEL uint32_t pair(uint32_t g, uint32_t h, uint32_t j) const {
    if constexpr (type == WeightType::f16) {
      return codes[4 * (2 * g + h) + j];
    } else if constexpr (type == WeightType::bf16) {
      const uint32_t both = codes[4 * (2 * g + h) + j];
      return as_half2(float_of(both << 16) * scale_up[h],
                      float_of(both & 0xFFFF0000u) * scale_up[h]);
    } else if constexpr (type == WeightType::f32) {
      const uint32_t at = 8 * (2 * g + h) + 2 * j;
      return as_half2(float_of(codes[at]) * scale_up[h], float_of(codes[at + 1]) * scale_up[h]);
    } else {
      return code_pair(g, h, j);
    }
  }

  /// 0x6400 is 1024, whose lowest bit counts ones: with a code's bits there it is 1024 + code, or
  /// 1024 + 16 code where they stand four bits higher. So it becomes the code, exactly.
  OUTRIDER_KERNEL uint32_t code_pair(uint32_t g, uint32_t h, uint32_t j) const {
    constexpr uint32_t k_1024 = 0x64006400u;
    constexpr uint32_t k_start = k_1024 + k_coding.zero * 0x10001u;
    if constexpr (k_coding.chunks == 2) {
      const uint32_t word = codes[4 * g + 2 * h + j / 2];
      return subtract_half2(spread_bytes(word, j % 2, 0x64646464u), k_start);
    } else if constexpr (k_coding.high_bits == 0) {
      const uint32_t word = codes[2 * g + h] >> (8 * (j / 2));
      if (j % 2 == 0) return subtract_half2(and_or(word, 0x000F000Fu, k_1024), k_start);
      constexpr uint32_t k_sixteenth = 0x2C002C00u;
      constexpr uint32_t k_less = k_coding.zero == 0 ? 0xD400D400u : 0xD480D480u;  // -64, -72
      static_assert(k_coding.zero == 0 || k_coding.zero == 8);
      return fused_half2(and_or(word, 0x00F000F0u, k_1024), k_sixteenth, k_less);
    } else {
      const uint32_t low = and_or(codes[2 * g + h] >> (4 * j), 0x000F000Fu, k_1024);
      uint32_t both;
      if constexpr (k_coding.high_bits == 1) {
        const uint32_t bits = high[0] >> (8 * (2 * g + h) + j);
        both = low | (bits & 1) << 4 | (bits >> 4 & 1) << 20;
      } else {
        const uint32_t bits = high[g] >> (16 * h + 2 * j);
        both = low | (bits & 3) << 4 | (bits >> 8 & 3) << 20;
      }
      return subtract_half2(both, k_start);
    }
  }
};

/// Calls use.template operator()<type>() for the type.
template <class Use>
auto with_weight_type(WeightType type, const Use& use) {
  switch (type) {
    case WeightType::q4_0:
      return use.template operator()<WeightType::q4_0>();
    case WeightType::q4_1:
      return use.template operator()<WeightType::q4_1>();
    case WeightType::q5_0:
      return use.template operator()<WeightType::q5_0>();
    case WeightType::q5_1:
      return use.template operator()<WeightType::q5_1>();
    case WeightType::q8_0:
      return use.template operator()<WeightType::q8_0>();
    case WeightType::q4_k:
      return use.template operator()<WeightType::q4_k>();
    case WeightType::q5_k:
      return use.template operator()<WeightType::q5_k>();
    case WeightType::q6_k:
      return use.template operator()<WeightType::q6_k>();
    case WeightType::f16:
      return use.template operator()<WeightType::f16>();
    case WeightType::bf16:
      return use.template operator()<WeightType::bf16>();
    case WeightType::f32:
      break;
  }
  return use.template operator()<WeightType::f32>();
}

}  // namespace outrider::kernels::cuda
