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
///   tops    [16 outputs] of each 4 units: half d, half m | half d; or of each tile: float
/// A weight is code * scale + offset, where the code is what stands there less `zero`.
namespace outrider::kernels::cuda {

inline constexpr uint32_t k_tile_outputs = 16;
inline constexpr uint32_t k_unit_k = 64;
inline constexpr uint32_t k_chunk_bytes = 512;

enum class Tops : uint8_t { none, pairs, singles, rows };

struct UnitCoding {
  uint32_t chunks = 1;     ///< of codes in a unit
  uint32_t high_bits = 0;  ///< of a code in the high plane
  uint32_t zero = 0;
  bool is_float = false;
  bool sixteenths = false;  ///< a scale for 16 k, else for 32
  bool offsets = false;
  uint32_t scale_bytes = 0;  ///< of one output in a unit
  Tops tops = Tops::none;
};

constexpr UnitCoding unit_coding(WeightType type) {
  switch (type) {
    case WeightType::q4_0:
      return {1, 0, 8, false, false, false, 4, Tops::none};
    case WeightType::q4_1:
      return {1, 0, 0, false, false, true, 8, Tops::none};
    case WeightType::q5_0:
      return {1, 1, 16, false, false, false, 4, Tops::none};
    case WeightType::q5_1:
      return {1, 1, 0, false, false, true, 8, Tops::none};
    case WeightType::q8_0:
      return {2, 0, 128, false, false, false, 4, Tops::none};
    case WeightType::q4_k:
      return {1, 0, 0, false, false, true, 4, Tops::pairs};
    case WeightType::q5_k:
      return {1, 1, 0, false, false, true, 4, Tops::pairs};
    case WeightType::q6_k:
      return {1, 2, 32, false, true, false, 4, Tops::singles};
    case WeightType::f16:
      return {4, 0, 0, true, false, false, 0, Tops::none};
    case WeightType::bf16:
      return {4, 0, 0, true, false, false, 0, Tops::rows};
    case WeightType::f32:
      break;
  }
  return {8, 0, 0, true, false, false, 0, Tops::rows};
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

  LaneTile() = default;
  OUTRIDER_KERNEL LaneTile(const MatrixView& w, uint32_t tile, uint32_t lane) {
    const size_t unit = size_t{tile} * w.units;
    const uint32_t output = lane / 4;
    codes = w.codes + unit * k_codes_bytes + lane * 16;
    high = w.high + unit * k_high_bytes + lane * (k_coding.high_bits * 4);
    scales = w.scales + (unit * k_tile_outputs + output) * k_coding.scale_bytes;
    if constexpr (k_coding.tops == Tops::rows) {
      tops = w.tops + (size_t{tile} * k_tile_outputs + output) * 4;
    } else if constexpr (k_coding.tops != Tops::none) {
      tops = w.tops + (size_t{tile} * (w.units / 4) * k_tile_outputs + output) *
                          (k_tops_bytes / k_tile_outputs);
    }
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
};

/// The same for units that were copied to shared memory, plane behind plane.
template <WeightType type, class Shared>
struct SharedTile {
  using Plane = LaneTile<type>;

  const Shared& memory;
  uint32_t codes, high, scales, tops;

  /// Of `units` units (a multiple of 4), `at` bytes behind the start of `memory`.
  OUTRIDER_KERNEL SharedTile(const Shared& planes, uint32_t at, uint32_t units, uint32_t lane)
      : memory(planes),
        codes(at + lane * 16),
        high(at + units * Plane::k_codes_bytes + lane * (Plane::k_coding.high_bits * 4)),
        scales(at + units * (Plane::k_codes_bytes + Plane::k_high_bytes) +
               lane / 4 * Plane::k_coding.scale_bytes),
        tops(at + units * Plane::k_unit_bytes + lane / 4 * (Plane::k_tops_bytes / k_tile_outputs)) {
  }
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
};

/// One lane's share of a unit.
template <WeightType type>
struct LaneUnit {
  static constexpr UnitCoding k_coding = unit_coding(type);
  uint32_t codes[k_coding.chunks * 4];
  uint32_t high[2];
  uint32_t scales[2][2];  ///< [h]
  float tops[2][2];       ///< [h]: d and m, or the row's inverse scale

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

  /// A fragment of mma for step s of group g.
  OUTRIDER_KERNEL void fragment(uint32_t g, uint32_t s, uint32_t* a) const {
    a[0] = pair(g, 0, 2 * s);
    a[1] = pair(g, 1, 2 * s);
    a[2] = pair(g, 0, 2 * s + 1);
    a[3] = pair(g, 1, 2 * s + 1);
  }

  /// Weight e of output h and group g, rounded once.
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

  OUTRIDER_KERNEL float scale(uint32_t g, uint32_t s, uint32_t h) const {
    if constexpr (k_coding.tops == Tops::rows) {
      return tops[h][0];
    } else if constexpr (k_coding.tops == Tops::pairs) {
      return tops[h][0] * static_cast<float>(scales[h][0] >> (16 * g) & 0xFF);
    } else if constexpr (k_coding.tops == Tops::singles) {
      const auto code = static_cast<int8_t>(scales[h][0] >> (8 * (2 * g + s)) & 0xFF);
      return tops[h][0] * static_cast<float>(code);
    } else if constexpr (k_coding.is_float) {
      return 1.0f;
    } else if constexpr (k_coding.offsets) {
      return half_as_float(static_cast<uint16_t>(scales[h][g]));
    } else {
      return half_as_float(static_cast<uint16_t>(scales[h][0] >> (16 * g)));
    }
  }
  OUTRIDER_KERNEL float offset(uint32_t g, uint32_t h) const {
    if constexpr (k_coding.tops == Tops::pairs) {
      return tops[h][1] * static_cast<float>(scales[h][0] >> (16 * g + 8) & 0xFF);
    } else {
      return half_as_float(static_cast<uint16_t>(scales[h][g] >> 16));
    }
  }

 private:
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
    if constexpr (k_coding.tops == Tops::rows) {
      tops[h][0] = tile.template tops_at<float>(32 * h);
    } else if constexpr (k_coding.tops == Tops::pairs) {
      const auto both = tile.template tops_at<uint32_t>(of_four + 32 * h);
      tops[h][0] = half_as_float(static_cast<uint16_t>(both));
      tops[h][1] = half_as_float(static_cast<uint16_t>(both >> 16));
    } else if constexpr (k_coding.tops == Tops::singles) {
      tops[h][0] = half_as_float(tile.template tops_at<uint16_t>(of_four + 16 * h));
    }
  }

  /// The codes e = 2 j and 2 j + 1 of output h as halves; scaled weights of wider floats.
  OUTRIDER_KERNEL uint32_t pair(uint32_t g, uint32_t h, uint32_t j) const {
    if constexpr (type == WeightType::f16) {
      return codes[4 * (2 * g + h) + j];
    } else if constexpr (type == WeightType::bf16) {
      const uint32_t both = codes[4 * (2 * g + h) + j];
      const float scale_up = float_of((254u << 23) - bits_of(tops[h][0]));
      return as_half2(float_of(both << 16) * scale_up, float_of(both & 0xFFFF0000u) * scale_up);
    } else if constexpr (type == WeightType::f32) {
      const uint32_t at = 8 * (2 * g + h) + 2 * j;
      const float scale_up = float_of((254u << 23) - bits_of(tops[h][0]));
      return as_half2(float_of(codes[at]) * scale_up, float_of(codes[at + 1]) * scale_up);
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
