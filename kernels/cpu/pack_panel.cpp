#include "kernels/cpu/pack_panel.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.hpp"
#include "base/half.hpp"
#include "kernels/weight_codes.hpp"

namespace outrider::kernels {
namespace {

constexpr size_t k_lanes = 16;

template <class T>
using Lanes = std::array<T, k_lanes>;

template <class T>
std::byte* put(const Lanes<T>& lanes, std::byte* out) {
  std::memcpy(out, lanes.data(), sizeof(lanes));
  return out + sizeof(lanes);
}

/// The lowest `bits` bits of each second byte of x, from byte 0 on, side by side.
template <uint32_t bits>
uint32_t gather_even(uint64_t x) {
  constexpr uint64_t mask = ((uint64_t{1} << bits) - 1) * 0x0001'0001'0001'0001u;
  x &= mask;
  x |= x >> (16 - bits);
  x |= x >> (32 - 2 * bits);
  return static_cast<uint32_t>(x) & ((1u << 4 * bits) - 1);
}

/// `bits` bits of each of 8 codes, as pairs: even k in the low half of a word, odd k in the high.
template <uint32_t bits>
uint32_t pair_bits(uint64_t codes) {
  return gather_even<bits>(codes) | gather_even<bits>(codes >> 8) << 16;
}

uint64_t eight_codes(const BlockCodes& block, size_t k) {
  uint64_t codes;
  std::memcpy(&codes, block.code + k, sizeof(codes));
  return codes;
}

uint32_t four_codes(const BlockCodes& block, size_t k) {
  uint32_t codes;
  std::memcpy(&codes, block.code + k, sizeof(codes));
  return (codes & 0xFF00'00FFu) | (codes >> 8 & 0xFF00u) | (codes & 0xFF00u) << 8;
}

/// The codes of weights [begin, begin + group) of 16 blocks.
template <PanelLayout layout>
std::byte* put_codes(const Lanes<BlockCodes>& blocks, size_t begin, std::byte* out) {
  Lanes<uint32_t> words;
  constexpr size_t step = layout.code_bits == 8 ? 4 : 8;
  for (size_t k = begin; k < begin + layout.group; k += step) {
    for (size_t lane = 0; lane < k_lanes; ++lane) {
      if constexpr (layout.code_bits == 8) {
        words[lane] = four_codes(blocks[lane], k);
      } else {
        words[lane] = pair_bits<4>(eight_codes(blocks[lane], k));
      }
    }
    out = put(words, out);
  }
  if constexpr (layout.high_bits() != 0) {
    constexpr uint32_t bits = layout.high_bits();
    words.fill(0);
    for (size_t k = 0; k < layout.group; k += step) {
      for (size_t lane = 0; lane < k_lanes; ++lane) {
        const uint64_t codes = eight_codes(blocks[lane], begin + k) >> 4;
        words[lane] |= pair_bits<bits>(codes) << (k / 2 * bits);
      }
    }
    out = put(words, out);
  }
  return out;
}

template <PanelLayout layout>
std::byte* put_super(const Lanes<BlockCodes>& blocks, std::byte* out) {
  const auto put_each = [&](auto&& value) {
    Lanes<decltype(value(blocks[0]))> lanes;
    for (size_t lane = 0; lane < k_lanes; ++lane) lanes[lane] = value(blocks[lane]);
    out = put(lanes, out);
  };
  put_each([](const BlockCodes& block) { return float_to_half(block.d); });
  if (layout.has_offset) put_each([](const BlockCodes& block) { return float_to_half(block.m); });
  for (size_t g = 0; g < layout.super / layout.group; ++g) {
    if (layout.scaled_groups) {
      put_each([g](const BlockCodes& block) { return block.scale[g]; });
      if (layout.has_offset) put_each([g](const BlockCodes& block) { return block.offset[g]; });
    }
    out = put_codes<layout>(blocks, g * layout.group, out);
  }
  return out;
}

/// What a packer gets: rows of the file, the first of the panel's at `in`.
struct PanelRows {
  WeightType type;
  const std::byte* in;
  size_t row_bytes;
  size_t rows;  ///< 1 to 16
  size_t cols;
};

template <PanelKind kind>
void pack_codes(const PanelRows& panel, std::byte* out) {
  constexpr PanelLayout layout = panel_layout(kind);
  const size_t block_bytes = weight_type_info(panel.type)->block_bytes;
  const BlockSplitter split = block_splitter(panel.type);
  Lanes<BlockCodes> blocks{};  // lanes past the matrix stay zero
  const size_t supers = panel.cols / layout.super;
  for (size_t s = 0; s < supers; ++s) {
    for (size_t lane = 0; lane < panel.rows; ++lane) {
      split(panel.in + lane * panel.row_bytes + s * block_bytes, blocks[lane]);
    }
    out = put_super<layout>(blocks, out);
  }
}

template <class T>
void pack_floats(const PanelRows& panel, std::byte* out) {
  const size_t padded = (panel.cols + k_float_step - 1) / k_float_step * k_float_step;
  Lanes<T> values{};
  for (size_t k = 0; k < panel.cols; ++k) {
    for (size_t lane = 0; lane < panel.rows; ++lane) {
      std::memcpy(&values[lane], panel.in + lane * panel.row_bytes + k * sizeof(T), sizeof(T));
    }
    out = put(values, out);
  }
  values = {};
  for (size_t k = panel.cols; k < padded; ++k) out = put(values, out);
}

void pack(const PanelRows& panel, std::byte* out) {
  switch (panel_kind(panel.type)) {
    case PanelKind::f32:
      return pack_floats<uint32_t>(panel, out);
    case PanelKind::f16:
    case PanelKind::bf16:
      return pack_floats<uint16_t>(panel, out);
    case PanelKind::q4_0:
      return pack_codes<PanelKind::q4_0>(panel, out);
    case PanelKind::q4_1:
      return pack_codes<PanelKind::q4_1>(panel, out);
    case PanelKind::q5_0:
      return pack_codes<PanelKind::q5_0>(panel, out);
    case PanelKind::q5_1:
      return pack_codes<PanelKind::q5_1>(panel, out);
    case PanelKind::q8_0:
      return pack_codes<PanelKind::q8_0>(panel, out);
    case PanelKind::q4_k:
      return pack_codes<PanelKind::q4_k>(panel, out);
    case PanelKind::q5_k:
      return pack_codes<PanelKind::q5_k>(panel, out);
    case PanelKind::q6_k:
      return pack_codes<PanelKind::q6_k>(panel, out);
  }
}

}  // namespace

PanelKind panel_kind(WeightType type) {
  switch (type) {
    case WeightType::f32:
      return PanelKind::f32;
    case WeightType::f16:
      return PanelKind::f16;
    case WeightType::bf16:
      return PanelKind::bf16;
    case WeightType::q4_0:
      return PanelKind::q4_0;
    case WeightType::q4_1:
      return PanelKind::q4_1;
    case WeightType::q4_k:
      return PanelKind::q4_k;
    case WeightType::q5_0:
      return PanelKind::q5_0;
    case WeightType::q5_1:
      return PanelKind::q5_1;
    case WeightType::q5_k:
      return PanelKind::q5_k;
    case WeightType::q6_k:
      return PanelKind::q6_k;
    case WeightType::q8_0:
      return PanelKind::q8_0;
  }
  OUTRIDER_CHECK(false, "weight type", static_cast<uint32_t>(type));
  __builtin_unreachable();
}

size_t panel_bytes(PanelKind kind, size_t cols) {
  const PanelLayout layout = panel_layout(kind);
  if (layout.super != 0) return cols / layout.super * layout.super_bytes();
  return (cols + k_float_step - 1) / k_float_step * k_float_step * 2 * layout.code_bits;
}

void pack_panel(const WeightView& weights, size_t panel, std::byte* out) {
  const WeightTypeInfo& info = *weight_type_info(weights.type);
  const size_t row_bytes = weights.cols / info.block_elements * info.block_bytes;
  const size_t row = k_lanes * panel;
  pack({.type = weights.type,
        .in = weights.data + row * row_bytes,
        .row_bytes = row_bytes,
        .rows = std::min(k_lanes, weights.rows - row),
        .cols = weights.cols},
       out);
}

}  // namespace outrider::kernels
