#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::kernels {

/// How the weights of a packed panel are coded: as the GGUF type of the same name codes them.
enum class PanelKind : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

/// A panel is 16 outputs side by side (a lane is an output) with k ascending; its bytes stand in
/// the order in which they are used. Outputs past the matrix are zero.
///
/// Float kinds: [k][16 values], k padded with zeros to a multiple of 8.
///
/// Coded kinds, with code c, d, m, scale and offset as in weight_codes.hpp:
///   super: [16 halves d] [16 halves m, if has_offset] and its groups
///   group: [16 int8 scale] [16 uint8 offset, if has_offset] (both only if scaled_groups) and codes
/// Codes are unsigned when there is an offset, else two's complement. One 32-bit word per lane
/// holds several k as pairs (k = 2i in the low half, 2i + 1 in the high half), which is how a pair
/// multiplies two 16-bit activations:
///   8-bit codes: words of 4 k; pair 0 in bytes 0 and 2, pair 1 in bytes 1 and 3
///   else low nibbles: words of 8 k; pair i at bit 4 i of each half
///   then the bits above: one word per lane; pair i at bit high_bits * i of each half
struct PanelLayout {
  uint32_t super = 0;      ///< k per d and m; 0: float values
  uint32_t group = 0;      ///< k per scale and offset
  uint32_t code_bits = 0;  ///< per weight
  bool has_offset = false;
  bool scaled_groups = false;

  [[gnu::always_inline]] constexpr uint32_t high_bits() const {
    return code_bits == 8 ? 0 : code_bits - 4;
  }
  [[gnu::always_inline]] constexpr size_t super_header_bytes() const {
    return has_offset ? 64 : 32;
  }
  [[gnu::always_inline]] constexpr size_t group_header_bytes() const {
    return !scaled_groups ? 0 : has_offset ? 32 : 16;
  }
  [[gnu::always_inline]] constexpr size_t group_bytes() const {
    return group_header_bytes() + size_t{group} * 2 * code_bits;
  }
  [[gnu::always_inline]] constexpr size_t super_bytes() const {
    return super_header_bytes() + super / group * group_bytes();
  }
};

[[gnu::always_inline]] constexpr PanelLayout panel_layout(PanelKind kind) {
  switch (kind) {
    case PanelKind::f32:
      return {.code_bits = 32};
    case PanelKind::f16:
    case PanelKind::bf16:
      return {.code_bits = 16};
    case PanelKind::q4_0:
      return {32, 32, 4, false, false};
    case PanelKind::q4_1:
      return {32, 32, 4, true, false};
    case PanelKind::q5_0:
      return {32, 32, 5, false, false};
    case PanelKind::q5_1:
      return {32, 32, 5, true, false};
    case PanelKind::q8_0:
      return {32, 32, 8, false, false};
    case PanelKind::q4_k:
      return {256, 32, 4, true, true};
    case PanelKind::q5_k:
      return {256, 32, 5, true, true};
    case PanelKind::q6_k:
      return {256, 16, 6, false, true};
  }
  return {};
}

/// k of one pass over a strip of float weights.
inline constexpr size_t k_strip_k = 128;
/// Float panels hold a multiple of this many k.
inline constexpr size_t k_float_step = 8;

}  // namespace outrider::kernels
