#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::kernels {

/// How the weights of a packed panel are coded. A panel is 16 outputs side by side (a lane is an
/// output) with k ascending, in groups of k that share a scale per lane:
///   group: [16 scales][16 offsets][codes: k ascending, 16 lanes each]
/// 4-bit codes stand as one 32-bit word per lane for 8 consecutive k, lowest bits first. Rows past
/// the matrix and k past its end are zero.
enum class PanelKind : uint8_t {
  f32,
  f16,
  bf16,
  nibble_centered,    ///< Q4_0: (code - 8) * half
  nibble_half,        ///< Q4_1: code * half + half
  nibble_float,       ///< Q4_K: code * float + float
  int8_half,          ///< Q5_0, Q8_0: code * half
  int8_half_offset,   ///< Q5_1: code * half + half
  int8_float_offset,  ///< Q5_K: code * float + float
  int8_float,         ///< Q6_K: code * float, groups of 16
};

struct PanelLayout {
  uint32_t group;         ///< k per group
  uint32_t code_bits;     ///< per weight
  uint32_t scale_bytes;   ///< per lane; 0: codes are the values
  uint32_t offset_bytes;  ///< per lane; 0: none

  [[gnu::always_inline]] constexpr size_t codes_at() const {
    return size_t{16} * (scale_bytes + offset_bytes);
  }
  [[gnu::always_inline]] constexpr size_t group_bytes() const {
    return codes_at() + size_t{group} * 2 * code_bits;
  }
};

inline constexpr PanelLayout k_panel_layouts[] = {
    {8, 32, 0, 0}, {8, 16, 0, 0}, {8, 16, 0, 0}, {32, 4, 2, 0}, {32, 4, 2, 2},
    {32, 4, 4, 4}, {32, 8, 2, 0}, {32, 8, 2, 2}, {32, 8, 4, 4}, {16, 8, 4, 0},
};

/// k of one pass over a dequantised strip; a multiple of every group.
inline constexpr size_t k_strip_k = 128;

}  // namespace outrider::kernels
