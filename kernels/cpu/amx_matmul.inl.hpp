#pragma once

#include "kernels/cpu/code_matmul.inl.hpp"

/// Products of many rows by AMX, with the bits of code_matmul: per group of weights two tiles of
/// exact int32 dots, of the high and of the low bytes of 16 rows' codes with 16 outputs, make the
/// same integers, and these go the same way through float. `Tiles` is the instructions, or what
/// emulates them (amx_emulation.inl.hpp). docs/decisions/0007-amx.md counts the cycles.
namespace outrider::kernels::OUTRIDER_ISA {

/// What `ldtilecfg` loads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Tiles 0 … 3: sums of two groups in turn, high and low; 4 and 5: high and low codes of the
/// activations; 6 and 7: weights of two groups in turn.
constexpr TileConfig tile_config(uint32_t group) {
  TileConfig config;
  for (size_t i = 0; i < 8; ++i) {
    config.rows[i] = i < 6 ? k_plane_rows : static_cast<uint8_t>(group / 4);
    config.row_bytes[i] = i == 4 || i == 5 ? static_cast<uint16_t>(group) : 64;
  }
  return config;
}

/// GCC 12 drops stores to a configuration on the stack, so it is static.
template <uint32_t group>
static constexpr TileConfig k_tile_config = tile_config(group);

/// k of a panel that is unpacked at a time, a multiple of every super: with 16 rows of activations
/// it stays in L1.
constexpr size_t k_unpacked_k = 512;

/// Some groups of a panel, [k / 4][16 outputs] words of four k in the order of the planes, and
/// their scales. Signed codes stand at the top of their byte, and the scale makes up for that:
/// exact, as all powers of two are here.
struct UnpackedPanel {
  alignas(64) uint32_t codes[4 * k_unpacked_k];
  float scale[k_unpacked_k];
  float offset[k_unpacked_k];
};

/// Bits of each half moved up, or down if n < 0.
template <int n>
OUTRIDER_INLINE Ints move_16(Ints a) {
  if constexpr (n >= 0) return shift_left_16<n>(a);
  if constexpr (n < 0) return shift_right_16<-n, false>(a);
}

/// The same bits in both bytes of a half, as the vector operations take them.
constexpr int in_both_bytes(int bits) {
  return static_cast<int16_t>(static_cast<uint16_t>(bits * 0x0101));
}

/// Eight k of a group as two rows of a tile: pairs 4 i and 4 i + 2, then 4 i + 1 and 4 i + 3.
template <PanelKind kind, size_t i>
OUTRIDER_INLINE void unpack_eight(const std::byte* at, uint32_t* out) {
  constexpr PanelLayout layout = panel_layout(kind);
  constexpr int bits = static_cast<int>(layout.code_bits);
  if constexpr (bits == 8) {
    const Ints first_four = load_ints(at + 128 * i);
    const Ints last_four = load_ints(at + 128 * i + 64);
    store_ints(out, select_16<255>(first_four, shift_left_16<8>(last_four)));
    store_ints(out + 16, select_16<255>(shift_right_16<8, false>(first_four), last_four));
  } else {
    constexpr int up = layout.has_offset ? 0 : 8 - bits;
    constexpr int high_bits = bits - 4;
    const Ints low = load_ints(at + 64 * i);
    Ints high = low;
    if constexpr (high_bits != 0) high = load_ints(at + 8 * layout.group);
    unroll<2>([&](auto row) __attribute__((always_inline)) {
      Ints codes = move_16<up - 4 * static_cast<int>(row.value)>(low);
      if constexpr (high_bits != 0) {
        constexpr int from = high_bits * static_cast<int>(4 * i + row.value);
        const Ints top = select_16<255>(move_16<4 + up - from>(high),
                                        move_16<12 + up - from - 2 * high_bits>(high));
        codes = select_16<in_both_bytes(15 << up)>(codes, top);
      }
      constexpr int mask = ((1 << bits) - 1) << up;
      store_ints(out + 16 * row.value, and_16<in_both_bytes(mask)>(codes));
    });
  }
}

/// A multiple of super k from `at` on.
template <PanelKind kind>
static void unpack(const std::byte* at, size_t k, UnpackedPanel& out) {
  constexpr PanelLayout layout = panel_layout(kind);
  const Vec unit = broadcast(layout.has_offset ? 1.0f : 1.0f / (1 << (8 - layout.code_bits)));
  uint32_t* codes = out.codes;
  float* scales = out.scale;
  float* offsets = out.offset;
  for (size_t super = 0; super < k; super += layout.super) {
    const Vec d = load_half(at) * unit;
    Vec m = zero();
    if constexpr (layout.has_offset) m = load_half(at + 32);
    at += layout.super_header_bytes();
    for (size_t group = 0; group < layout.super; group += layout.group) {
      for (size_t i = 0; i < layout.group_bytes(); i += 64) {
        __builtin_prefetch(at + k_prefetch_bytes + i);
      }
      Vec scale = d;
      if constexpr (layout.scaled_groups) {
        scale = scale * (layout.has_offset ? load_uint8(at) : load_int8(at));
      }
      store(scales, scale);
      if constexpr (layout.has_offset) {
        store(offsets, layout.scaled_groups ? m * load_uint8(at + 16) : m);
      }
      unroll<layout.group / 8>([&](auto i) __attribute__((always_inline)) {
        unpack_eight<kind, i.value>(at + layout.group_header_bytes(), codes + 32 * i.value);
      });
      at += layout.group_bytes();
      codes += 4 * layout.group;
      scales += 16;
      offsets += 16;
    }
  }
}

/// Dots of one group, [high, low][16 rows][16 outputs].
using GroupDots = int32_t[2][k_plane_rows][16];

/// Adds 16 rows times some groups of a panel to acc [16][16]. The dots of a group are stored while
/// those of the group before go through float.
template <PanelKind kind, class Tiles>
[[gnu::noinline]] static void amx_tile(const std::byte* blocks, const UnpackedPanel& panel,
                                       size_t groups, float* acc) {
  constexpr PanelLayout layout = panel_layout(kind);
  alignas(64) GroupDots dots[2];
  Vec sum[k_plane_rows];
#pragma GCC unroll 16
  for (size_t r = 0; r < k_plane_rows; ++r) sum[r] = load(acc + 16 * r);
  const auto block_of = [&](size_t g) __attribute__((always_inline)) {
    return blocks + g * layout.group / k_sum_group * k_plane_block_bytes;
  };
  const auto multiply = [&](auto turn, size_t g) __attribute__((always_inline)) {
    constexpr int t = static_cast<int>(turn.value);
    const std::byte* codes = block_of(g) + g * layout.group % k_sum_group;
    Tiles::template load<6 + t>(panel.codes + g * layout.group * 4, 64);
    Tiles::template load<4>(codes, k_sum_group);
    Tiles::template zero<2 * t>();
    Tiles::template dot_signed<2 * t, 4, 6 + t>();
    Tiles::template load<5>(codes + k_plane_bytes, k_sum_group);
    Tiles::template zero<2 * t + 1>();
    Tiles::template dot_unsigned<2 * t + 1, 5, 6 + t>();
    Tiles::template store<2 * t>(dots[t][0], 64);
    Tiles::template store<2 * t + 1>(dots[t][1], 64);
  };
  const auto combine = [&](auto turn, size_t g) __attribute__((always_inline)) {
    const GroupDots& dot = dots[turn.value];
    const Vec scale = load(panel.scale + 16 * g);
    const Vec offset = layout.has_offset ? load(panel.offset + 16 * g) : zero();
    const std::byte* row_sums = block_of(g) + 2 * k_plane_bytes;
#pragma GCC unroll 16
    for (size_t r = 0; r < k_plane_rows; ++r) {
      const Ints whole = shift_left<8>(load_ints(dot[0][r])) + load_ints(dot[1][r]);
      sum[r] = fma(to_float(whole), scale, sum[r]);
      if constexpr (layout.has_offset) {
        float row_sum;
        __builtin_memcpy(&row_sum, row_sums + r * sizeof(float), sizeof(float));
        sum[r] = fma(offset, broadcast(row_sum), sum[r]);
      }
    }
  };
  multiply(Index<0>{}, 0);
  for (size_t g = 0; g < groups; g += 2) {
    if (g + 1 < groups) multiply(Index<1>{}, g + 1);
    combine(Index<0>{}, g);
    if (g + 2 < groups) multiply(Index<0>{}, g + 2);
    if (g + 1 < groups) combine(Index<1>{}, g + 1);
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < k_plane_rows; ++r) store(acc + 16 * r, sum[r]);
}

/// Any number of rows times the panels of a pair: a piece of a panel is unpacked once for all rows.
template <PanelKind kind, class Tiles>
static void amx_tiles(const MatmulArgs& a, const CodeTile& t) {
  constexpr PanelLayout layout = panel_layout(kind);
  UnpackedPanel unpacked;
  const size_t rows = t.rows.end - t.rows.begin;
  const size_t blocks_bytes = a.k / k_sum_group * k_plane_block_bytes;  // of 16 rows
  const std::byte* blocks = a.rows.planes + t.rows.begin / k_plane_rows * blocks_bytes;
  for (size_t p = 0; p < (t.count == 1 ? 1 : 2); ++p) {
    float* acc = t.acc + p * t.acc_stride;
    for (size_t k = t.k.begin; k < t.k.end; k += k_unpacked_k) {
      const size_t step = min_of(k_unpacked_k, t.k.end - k);
      unpack<kind>(t.panel[p] + k / layout.super * layout.super_bytes(), step, unpacked);
      for (size_t r = 0; r < rows; r += k_plane_rows) {
        alignas(64) float part[k_plane_rows * 16];
        const size_t height = min_of(rows - r, k_plane_rows);
        for (size_t i = 0; i < k_plane_rows; ++i) {
          store(part + 16 * i, k == 0 || i >= height ? zero() : load(acc + 16 * (r + i)));
        }
        amx_tile<kind, Tiles>(
            blocks + r / k_plane_rows * blocks_bytes + k / k_sum_group * k_plane_block_bytes,
            unpacked, step / layout.group, part);
        for (size_t i = 0; i < height; ++i) {
          const size_t row = t.rows.begin + r + i;
          const Vec sum = load(part + 16 * i);
          if (k + step < a.k || t.count == 0) {
            store(acc + 16 * (r + i), sum);
          } else {
            finish(a, row, t.index + p, sum * broadcast(a.rows.scale[row]));
          }
        }
      }
    }
  }
}

/// Eight codes at a time: their high bytes, then their low ones.
static void split_row(const int16_t* codes, const float* sums, size_t k, size_t row,
                      std::byte* blocks) {
  using Bytes [[gnu::vector_size(16)]] = int8_t;
  std::byte* high = blocks + row * k_sum_group;
  for (size_t begin = 0; begin < k; begin += k_sum_group, high += k_plane_block_bytes) {
    for (size_t i = 0; i < k_sum_group; i += 8) {
      Bytes pairs;
      __builtin_memcpy(&pairs, codes + begin + i, sizeof pairs);
      pairs = __builtin_shufflevector(pairs, pairs, 1, 9, 3, 11, 5, 13, 7, 15, 0, 8, 2, 10, 4, 12,
                                      6, 14);
      __builtin_memcpy(high + i, &pairs, 8);
      __builtin_memcpy(high + k_plane_bytes + i, reinterpret_cast<const char*>(&pairs) + 8, 8);
    }
    __builtin_memcpy(high + 2 * k_plane_bytes - row * k_sum_group + row * sizeof(float),
                     sums + begin / k_sum_group, sizeof(float));
  }
}

template <class Tiles, const KernelTable& (*base)() noexcept>
static void amx_matmul(const MatmulArgs& a, Range rows, Range panels) {
  const PanelLayout layout = panel_layout(a.kind);
  if (layout.super == 0 || a.rows.planes == nullptr) return base().matmul(a, rows, panels);
  Tiles::configure(layout.group == 16 ? k_tile_config<16> : k_tile_config<32>);
  with_coded_kind(
      a.kind, [&](auto k) { panel_pairs(a, rows, panels, amx_tiles<decltype(k)::kind, Tiles>); });
  Tiles::release();
}

/// `base` with AMX for quantised weights and rows that have planes.
template <class Tiles, const KernelTable& (*base)() noexcept>
static KernelTable amx_table() noexcept {
  KernelTable table = base();
  table.matmul = amx_matmul<Tiles, base>;
  table.split_row = split_row;
  return table;
}

}  // namespace outrider::kernels::OUTRIDER_ISA
