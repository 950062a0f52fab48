#pragma once

#include "kernels/cpu/amx_matmul.inl.hpp"

/// The tile instructions of AMX-TILE and AMX-INT8 in plain C++, for tests: what the architecture's
/// manual defines, byte by byte. What faults on the CPU traps. State per thread, as there.
namespace outrider::kernels::OUTRIDER_ISA {
namespace {

struct EmulatedTiles {
  struct Tile {
    uint8_t bytes[16][64];
  };
  struct State {
    bool configured;
    TileConfig config;
    Tile tiles[8];
  };
  static State& state() {
    static thread_local State state = {};
    return state;
  }
  static void fault_unless(bool allowed) {
    if (!allowed) __builtin_trap();
  }

  static void configure(const TileConfig& config) {
    fault_unless(config.palette == 1 && config.start_row == 0);
    for (const uint8_t byte : config.reserved) fault_unless(byte == 0);
    for (size_t i = 0; i < 16; ++i) {
      const size_t rows = config.rows[i];
      const size_t row_bytes = config.row_bytes[i];
      fault_unless(i < 8 ? rows <= 16 && row_bytes <= 64 && (rows == 0) == (row_bytes == 0)
                         : rows == 0 && row_bytes == 0);
    }
    state() = {true, config, {}};
  }
  static void release() { state() = {}; }

  static Tile& use(size_t tile) {
    fault_unless(tile < 8 && state().configured && state().config.rows[tile] != 0);
    return state().tiles[tile];
  }
  static size_t rows(size_t tile) { return state().config.rows[tile]; }
  static size_t row_bytes(size_t tile) { return state().config.row_bytes[tile]; }

  static void load(size_t tile, const void* from, size_t stride) {
    Tile& t = use(tile);
    t = {};
    for (size_t r = 0; r < rows(tile); ++r) {
      __builtin_memcpy(t.bytes[r], static_cast<const char*>(from) + r * stride, row_bytes(tile));
    }
  }
  static void store(size_t tile, void* to, size_t stride) {
    const Tile& t = use(tile);
    for (size_t r = 0; r < rows(tile); ++r) {
      __builtin_memcpy(static_cast<char*>(to) + r * stride, t.bytes[r], row_bytes(tile));
    }
  }
  static void zero(size_t tile) { use(tile) = {}; }

  /// sums[m][n] += the four products of bytes of a[m][k] and b[k][n], for each k, in 32 bits.
  static void dot(size_t sums, size_t a, size_t b, bool a_is_signed) {
    fault_unless(sums != a && sums != b && a != b);
    Tile& out = use(sums);
    const Tile& left = use(a);
    const Tile& right = use(b);
    fault_unless(rows(sums) == rows(a) && row_bytes(a) == 4 * rows(b) &&
                 row_bytes(sums) == row_bytes(b) && row_bytes(b) % 4 == 0);
    const Tile before = out;
    out = {};
    for (size_t m = 0; m < rows(sums); ++m) {
      for (size_t n = 0; n < row_bytes(sums); n += 4) {
        uint32_t sum;
        __builtin_memcpy(&sum, before.bytes[m] + n, 4);
        for (size_t k = 0; k < rows(b); ++k) {
          for (size_t i = 0; i < 4; ++i) {
            const uint8_t byte = left.bytes[m][4 * k + i];
            const int32_t x = a_is_signed ? static_cast<int8_t>(byte) : byte;
            sum += static_cast<uint32_t>(x * static_cast<int8_t>(right.bytes[k][n + i]));
          }
        }
        __builtin_memcpy(out.bytes[m] + n, &sum, 4);
      }
    }
  }

  // As amx_matmul.inl.hpp calls them.
  template <int tile>
  static void load(const void* from, size_t stride) {
    load(tile, from, stride);
  }
  template <int tile>
  static void store(void* to, size_t stride) {
    store(tile, to, stride);
  }
  template <int tile>
  static void zero() {
    zero(tile);
  }
  template <int sums, int a, int b>
  static void dot_signed() {
    dot(sums, a, b, true);
  }
  template <int sums, int a, int b>
  static void dot_unsigned() {
    dot(sums, a, b, false);
  }
};

}  // namespace
}  // namespace outrider::kernels::OUTRIDER_ISA
