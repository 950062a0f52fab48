#pragma once

#include "kernels/cuda/math.hpp"
#include "kernels/cuda/weight_units.hpp"

/// Kernels that go over rows of activations, one block a row unless said.
namespace outrider::kernels::cuda {

/// Where products find the halves of a call's rows: tiles of `tile_rows` rows, of which
/// each unit of 64 k lies together. Of 8 rows, for FewRows, as mma's lanes take them: [units][2
/// g][8 rows][4 lanes][2 s][4 e], where k = 32 g + 16 s + 4 lane + e; of more, for ManyRows, as the
/// tensor cores read them in shared memory: [tiles][units][tile_rows] rows of 128 bytes, each 16 k
/// in the order of mma's own k (a lane's four neighbours are two k and the two 8 behind them),
/// pieces of 16 bytes swizzled.
struct RowTiles {
  uint32_t tile_rows = 0;
  uint32_t units = 0;

  /// Where a row's halves begin; the others stand in_row(…) behind.
  OUTRIDER_KERNEL size_t row_at(uint32_t row) const {
    return size_t{row / tile_rows} * units * (tile_rows * k_unit_k);
  }
  /// Of the four halves from k on, a multiple of 4; on tiles of more rows two by two, the others 8
  /// behind.
  OUTRIDER_KERNEL uint32_t in_row(uint32_t in_tile, uint32_t k) const {
    const uint32_t unit = k / k_unit_k * (tile_rows * k_unit_k), in_unit = k % k_unit_k;
    if (tile_rows == 8) {
      return unit + ((in_unit / 32 * 8 + in_tile) * 4 + k % 16 / 4) * 8 + k % 32 / 16 * 4;
    }
    return unit + in_tile * k_unit_k + swizzled_piece(in_tile, in_unit / 16 * 2) * 8 + k % 16 / 2;
  }
  OUTRIDER_KERNEL uint32_t second_pair(uint32_t in_row) const {
    return tile_rows == 8 ? in_row + 2 : in_row ^ 8;
  }
};

/// Rows as products take them: normed if asked for, times the power of two that brings the largest
/// magnitude to [2^14, 2^15) or next to it, in half precision. A row with an infinity or NaN, or
/// whose product with the norm has one, becomes zeros whose inverse is NaN.
///
/// Sum of squares: thread t adds x[i]^2 by FMA for i = 4 t … 4 t + 3, then 4096 behind, …; lanes of
/// a warp by pairs 16, 8, 4, 2, 1 apart; warps ascending. Value: x * (1 / sqrt(sum / k + eps)) *
/// norm.
struct PrepareRows {
  static constexpr uint32_t k_threads = 1024;
  static constexpr uint32_t k_blocks = 2;
  static constexpr uint32_t k_warps = k_threads / 32;
  static constexpr size_t k_shared_bytes = 2 * k_warps * sizeof(float);

  const float* x = nullptr;     ///< [m, k]
  const float* norm = nullptr;  ///< [k], or null
  float eps = 0;
  uint32_t k = 0;
  RowTiles tiles;
  uint16_t* halves = nullptr;  ///< zeros behind k
  float* inverse = nullptr;    ///< [m] by what to multiply to undo the power of two

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const uint32_t row = block.x();
    const float* const from = x + size_t{row} * k;
    const uint32_t fours = tiles.units * (k_unit_k / 4);
    auto of_warps = block.template shared<float>(k_warps);
    auto largest_of_warps = block.template shared<uint32_t>(k_warps);
    auto squares = block.template local<float>();
    auto largest = block.template local<uint32_t>();
    block.threads([&](uint32_t t) {
      squares[t] = 0;
      largest[t] = 0;
      for (uint32_t first = t; first < fours; first += k_batch * k_threads) {
        const Batch batch = read(from, first);
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < 4 * k_batch; ++i) {
          const float number = batch.numbers[i / 4].of[i % 4];
          squares[t] = fused(number, number, squares[t]);
          const float value = norm == nullptr ? number : number * batch.norms[i / 4].of[i % 4];
          largest[t] = greatest(largest[t], bits_of(value) & 0x7FFFFFFFu);
        }
      }
    });
    block.warp_sum(squares);
    block.warp_max(largest);
    block.threads([&](uint32_t t) {
      if (t % 32 != 0) return;
      of_warps.store(t / 32, squares[t]);
      largest_of_warps.store(t / 32, largest[t]);
    });
    block.barrier();

    auto factors = block.template local<Factors>();
    block.threads([&](uint32_t t) {
      float sum = 0;
      uint32_t highest = 0;
      for (uint32_t w = 0; w < k_warps; ++w) {
        sum += of_warps.load(w);
        highest = greatest(highest, largest_of_warps.load(w));
      }
      Factors& f = factors[t];
      f.norm = norm == nullptr ? 1.0f : 1.0f / square_root(sum / static_cast<float>(k) + eps);
      if (norm != nullptr) highest = bits_of(float_of(highest) * f.norm);
      f.is_finite = highest < 0x7F800000u;
      f.scale = power_of_two(half_exponent(highest));
      if (t == 0) {
        inverse[row] = f.is_finite ? power_of_two(-half_exponent(highest)) : float_of(0x7FC00000u);
      }
    });

    block.threads([&](uint32_t t) {
      for (uint32_t first = t; first < fours; first += k_batch * k_threads) {
        const Batch batch = read(from, first);
        OUTRIDER_UNROLL
        for (uint32_t j = 0; j < k_batch; ++j) {
          const uint32_t i = first + j * k_threads;
          if (i < fours) put_four(row, i, batch.numbers[j], batch.norms[j], factors[t]);
        }
      }
    });
  }

 private:
  struct Four {
    float of[4];
  };
  struct Factors {
    float norm, scale;
    bool is_finite;
  };
  /// Reads that are under way at the same time.
  static constexpr uint32_t k_batch = 2;
  struct Batch {
    Four numbers[k_batch], norms[k_batch];
  };

  /// Fours first, first + 1024, …
  OUTRIDER_KERNEL Batch read(const float* from, uint32_t first) const {
    Batch batch;
    OUTRIDER_UNROLL
    for (uint32_t j = 0; j < k_batch; ++j) {
      batch.numbers[j] = four(from, first + j * k_threads);
      batch.norms[j] = norm == nullptr ? Four{} : four(norm, first + j * k_threads);
    }
    return batch;
  }

  /// Numbers 4 i … 4 i + 3; zeros behind k.
  OUTRIDER_KERNEL Four four(const float* from, uint32_t i) const {
    Four out = {};
    if (k % 4 == 0) {
      if (4 * i >= k) return out;
      const auto words = load_as<Words4>(from + 4 * i);
      OUTRIDER_UNROLL
      for (uint32_t e = 0; e < 4; ++e) out.of[e] = float_of(words.w[e]);
      return out;
    }
    for (uint32_t e = 0; e < 4; ++e) {
      if (4 * i + e < k) out.of[e] = from[4 * i + e];
    }
    return out;
  }

  OUTRIDER_KERNEL void put_four(uint32_t row, uint32_t i, const Four& numbers, const Four& norms,
                                const Factors& f) const {
    float values[4];
    OUTRIDER_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      const float value = norm == nullptr ? numbers.of[e] : numbers.of[e] * f.norm * norms.of[e];
      values[e] = f.is_finite ? value * f.scale : 0.0f;
    }
    uint16_t* const to = halves + tiles.row_at(row);
    const uint32_t at = tiles.in_row(row % tiles.tile_rows, 4 * i);
    store_as(to + at, finite_as_half2(values[0], values[1]));
    store_as(to + tiles.second_pair(at), finite_as_half2(values[2], values[3]));
  }
};

/// out[i] = silu(gate[i]) * up[i]; a thread an element.
struct Swiglu {
  static constexpr uint32_t k_threads = 256;

  const float* gate = nullptr;  ///< [count]
  const float* up = nullptr;    ///< [count]
  float* out = nullptr;         ///< [count]
  uint64_t count = 0;

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    block.threads([&](uint32_t t) {
      const uint64_t i = uint64_t{block.x()} * k_threads + t;
      if (i < count) out[i] = swiglu(gate[i], up[i]);
    });
  }
};

/// out[i, :] = table[ids[i], :], exactly the values of `dequantize`: products of codes and scales
/// are exact in float, the sum is rounded once. But in a row with a weight of 2^15 or more, scales
/// of less than 2^-14 may be rounded. A thread takes a group of 32 k, of which it reads each lane's
/// share.
struct Embed {
  static constexpr uint32_t k_threads = 128;

  WeightType weight_type = WeightType::f32;
  MatrixView table;
  const int32_t* ids = nullptr;  ///< [rows]
  uint32_t k = 0;
  float* out = nullptr;  ///< [rows, k]
};

/// Embed for one type of weights.
template <WeightType type>
struct EmbedOf : Embed {
  explicit EmbedOf(const Embed& call) : Embed(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const auto id = static_cast<uint32_t>(ids[block.x()]);
    float* const to = out + size_t{block.x()} * k;
    block.threads([&](uint32_t t) {
      // A quarter of a lane quartet's units each: 16 k, of four lanes.
      for (uint32_t q = t; q < table.units * 4; q += k_threads) put_lane(id, q / 4, q % 4, to);
    });
  }

 private:
  /// What the lane `quarter` of the output's four holds of a unit.
  OUTRIDER_KERNEL void put_lane(uint32_t id, uint32_t unit, uint32_t quarter, float* to) const {
    const uint32_t output = id % k_tile_outputs;
    const uint32_t h = output / 8;
    float row_scale = 1.0f;
    if constexpr (!LaneUnit<type>::k_coding.is_float) row_scale = table.row_scales[id];
    LaneUnit<type> lane;
    lane.read(LaneTile<type>(table, id / k_tile_outputs, output % 8 * 4 + quarter), unit);
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t i = unit * k_unit_k + 32 * g + e / 4 * 16 + 4 * quarter + e % 4;
        if (i < k) to[i] = lane.weight(g, h, e) * row_scale;
      }
    }
  }
};

/// Rotates x [m, heads, head_dim] in place (RopeParams), a block a head: pairs (fma(a, c, -(b s)),
/// fma(b, c, a s)). With `hadamard` then times 1 / sqrt(head_dim), then sums and differences of
/// elements 1, 2, 4, … apart.
struct Rope {
  static constexpr uint32_t k_threads = 128;

  float* x = nullptr;
  const int32_t* positions = nullptr;  ///< [m]
  const float* cosines = nullptr;      ///< [positions, rotary_dim]: cosines, then sines
  uint32_t heads = 0;
  uint32_t head_dim = 0;
  uint32_t rotary_dim = 0;
  bool adjacent = false;
  bool hadamard = false;
  float shrink = 1;  ///< 1 / sqrt(head_dim)

  size_t shared_bytes() const { return (head_dim * sizeof(float) + 15) / 16 * 16; }

  /// Blocks: x a head, y a row.
  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    float* const head = x + (size_t{block.y()} * heads + block.x()) * head_dim;
    const float* const turn = cosines + static_cast<size_t>(positions[block.y()]) * rotary_dim;
    const uint32_t half = rotary_dim / 2;
    auto values = block.template shared<float>(head_dim);
    block.threads([&](uint32_t t) {
      for (uint32_t i = t; i < half; i += k_threads) {
        const uint32_t at = adjacent ? 2 * i : i, to = adjacent ? 2 * i + 1 : i + half;
        const float a = head[at], b = head[to], c = turn[i], s = turn[half + i];
        // Each style's zeros have the CPU's sign.
        values.store(at, fused(a, c, adjacent ? -(b * s) : 0.0f - b * s));
        values.store(to, fused(b, c, a * s));
      }
      for (uint32_t i = rotary_dim + t; i < head_dim; i += k_threads) values.store(i, head[i]);
    });
    block.barrier();
    if (hadamard) multiply_by_hadamard(block, values);
    block.threads([&](uint32_t t) {
      for (uint32_t i = t; i < head_dim; i += k_threads) head[i] = values.load(i);
    });
  }

 private:
  template <class Block, class Shared>
  OUTRIDER_KERNEL void multiply_by_hadamard(Block& block, Shared& values) const {
    block.threads([&](uint32_t t) {
      for (uint32_t i = t; i < head_dim; i += k_threads) values.store(i, values.load(i) * shrink);
    });
    block.barrier();
    for (uint32_t apart = 1; apart < head_dim; apart *= 2) {
      block.threads([&](uint32_t t) {
        for (uint32_t i = t; i < head_dim / 2; i += k_threads) {
          const uint32_t at = i / apart * 2 * apart + i % apart;
          const float a = values.load(at), b = values.load(at + apart);
          values.store(at, a + b);
          values.store(at + apart, a - b);
        }
      });
      block.barrier();
    }
  }
};

/// out[i, :] = x[rows[i], :], a block a row.
struct Gather {
  static constexpr uint32_t k_threads = 256;

  const float* x = nullptr;
  const uint32_t* rows = nullptr;
  uint32_t width = 0;
  float* out = nullptr;

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const float* const from = x + size_t{rows[block.x()]} * width;
    float* const to = out + size_t{block.x()} * width;
    block.threads([&](uint32_t t) {
      for (uint32_t i = t; i < width; i += k_threads) to[i] = from[i];
    });
  }
};

}  // namespace outrider::kernels::cuda
