#pragma once

#include "kernels/cuda/kv_tiles.hpp"

namespace outrider::kernels::cuda {

/// Rows of one sequence that fall into one tile of 16 positions.
struct AppendItem {
  uint32_t table_at = 0;  ///< of its sequence, in the tables
  uint32_t first_row = 0;
  uint32_t first_position = 0;
  uint32_t rows = 0;  ///< 0: there is nothing to do
};

/// Rounds keys and values into their tiles as kv_store does. Blocks: x an item, y a kv head, z keys
/// or values. Codes of several positions share words, so that a thread takes all positions of its
/// 32 elements; numbers without scales are a thread each.
struct KvAppend {
  static constexpr uint32_t k_threads = 128;

  KvPool pool;
  const AppendItem* items = nullptr;
  const int32_t* tables = nullptr;
  const float* keys = nullptr;    ///< [rows, kv_heads, head_dim]
  const float* values = nullptr;  ///< likewise
  uint32_t kv_heads = 0;

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const AppendItem& item = items[block.x()];
    if (item.rows == 0) return;
    const bool is_values = block.z() == 1;
    const KvTiles& tiles = pool.of[is_values ? 1 : 0];
    std::byte* const tile =
        pool.tile(tables + item.table_at, item.first_position / 16, block.y(), is_values);
    const float* const from = (is_values ? values : keys) +
                              (size_t{item.first_row} * kv_heads + block.y()) * pool.head_dim;
    const size_t pitch = size_t{kv_heads} * pool.head_dim;
    block.threads([&](uint32_t t) {
      if (tiles.has_scales) {
        const uint32_t groups = (pool.head_dim + 31) / 32;
        for (uint32_t g = t; g < groups; g += k_threads) {
          for (uint32_t r = 0; r < item.rows; ++r) {
            put_group(tiles, is_values, item.first_position % 16 + r, g, from + r * pitch, tile);
          }
        }
        return;
      }
      for (uint32_t i = t; i < item.rows * pool.head_dim; i += k_threads) {
        const uint32_t r = i / pool.head_dim, d = i % pool.head_dim;
        put_number(tiles, is_values, item.first_position % 16 + r, d, from[r * pitch + d], tile);
      }
    });
  }

 private:
  OUTRIDER_KERNEL void put_number(const KvTiles& tiles, bool is_values, uint32_t position,
                                  uint32_t d, float x, std::byte* tile) const {
    std::byte* const unit = tile + d / 16 * tiles.unit_bytes;
    const uint32_t index = is_values ? position * 16 + d % 16 : d % 16 * 16 + position;
    if (tiles.kind == KvKind::fp32) {
      store_as(unit + 4 * index, x);
    } else if (tiles.kind == KvKind::fp16) {
      store_as(unit + 2 * index, float_as_half(x));
    } else if (tiles.kind == KvKind::bf16) {
      store_as(unit + 2 * index, to_bfloat16(x));
    } else {
      unit[index] = static_cast<std::byte>(to_e4m3(x));
    }
  }

  /// Elements 32 g … 32 g + 31 of one position; elements behind the head's last are zeros.
  OUTRIDER_KERNEL void put_group(const KvTiles& tiles, bool is_values, uint32_t position,
                                 uint32_t g, const float* row, std::byte* tile) const {
    const uint32_t count = least(32u, pool.head_dim - 32 * g);
    const GroupScale scale = scale_of_group(tiles.kind, row + 32 * g, count);
    store_as(tile + tiles.scales_at + g * 32 + position * 2, scale.half);
    for (uint32_t i = 0; i < (count + 15) / 16 * 16; ++i) {
      const uint32_t code = code_of(tiles, i < count ? row[32 * g + i] : 0.0f, scale);
      std::byte* const unit = tile + (2 * g + i / 16) * tiles.unit_bytes;
      put_code(tiles, is_values ? position : i % 16, is_values ? i % 16 : position, code, unit);
    }
  }

  OUTRIDER_KERNEL void put_code(const KvTiles& tiles, uint32_t k, uint32_t lane, uint32_t code,
                                std::byte* unit) const {
    const uint32_t bits = word_bits(tiles.kind);
    const uint32_t mask = (1u << bits) - 1;
    const CodeAt at = code_at(bits, k);
    std::byte* const word = unit + at.word * 64 + 4 * lane;
    const uint32_t rest = load_as<uint32_t>(word) & ~(mask << at.shift);
    store_as(word, rest | (code & mask) << at.shift);
    if (tiles.kind != KvKind::q3) return;
    std::byte* const thirds = unit + 64 + 2 * lane;
    const uint32_t others = load_as<uint16_t>(thirds) & ~(1u << third_bit_at(k));
    store_as(thirds, static_cast<uint16_t>(others | (code >> 2) << third_bit_at(k)));
  }
};

}  // namespace outrider::kernels::cuda
