#pragma once

#include "kernels/cuda/math.hpp"
#include "kernels/cuda/weight_units.hpp"

/// Kernels that go over rows of activations, one block a row unless said.
namespace outrider::kernels::cuda {

/// Rows as products take them: normed if asked for, times the power of two that brings the largest
/// magnitude to [2^14, 2^15), in half precision. A row with an infinity or NaN becomes zeros whose
/// inverse is NaN.
///
/// Sum of squares: thread t adds x[i]^2 for i = t, t + 256, … by FMA; lanes of a warp by pairs 16,
/// 8, 4, 2, 1 apart; warps ascending. Value: x * (1 / sqrt(sum / k + eps)) * norm. Sums of 32
/// neighbours' halves: by pairs likewise.
struct PrepareRows {
  static constexpr uint32_t k_threads = 256;
  static constexpr uint32_t k_warps = k_threads / 32;
  static constexpr size_t k_shared_bytes = 2 * k_warps * sizeof(float);

  const float* x = nullptr;     ///< [m, k]
  const float* norm = nullptr;  ///< [k], or null
  float eps = 0;
  uint32_t k = 0;
  uint32_t k_padded = 0;       ///< multiple of 64; zeros behind k
  uint32_t pitch = 0;          ///< of sums, at least m
  bool in_slots = false;       ///< as ManyRows takes them: each 16 in the order of mma's k
  uint16_t* halves = nullptr;  ///< [m, k_padded]
  float* sums = nullptr;       ///< [k_padded / 32, pitch], or null
  float* inverse = nullptr;    ///< [m] by what to multiply to undo the power of two

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const uint32_t row = block.x();
    const float* const from = x + size_t{row} * k;
    auto of_warps = block.template shared<float>(k_warps);
    auto largest_of_warps = block.template shared<uint32_t>(k_warps);
    auto factor = block.template local<float>();
    find_factor(block, from, of_warps, factor);

    auto largest = block.template local<uint32_t>();
    block.threads([&](uint32_t t) {
      largest[t] = 0;
      for (uint32_t i = t; i < k; i += k_threads) {
        largest[t] = greatest(largest[t], bits_of(value(from, i, factor[t])) & 0x7FFFFFFFu);
      }
    });
    block.warp_max(largest);
    block.threads([&](uint32_t t) {
      if (t % 32 == 0) largest_of_warps.store(t / 32, largest[t]);
    });
    block.barrier();
    block.threads([&](uint32_t t) {
      largest[t] = 0;
      for (uint32_t w = 0; w < k_warps; ++w) {
        largest[t] = greatest(largest[t], largest_of_warps.load(w));
      }
    });

    auto part = block.template local<float>();
    for (uint32_t base = 0; base < k_padded; base += k_threads) {
      block.threads([&](uint32_t t) {
        part[t] = 0;
        const uint32_t i = base + t;
        if (i >= k_padded) return;
        const bool finite = largest[t] < 0x7F800000u;
        const float scale = power_of_two(half_exponent(largest[t]));
        const bool inside = i < k && finite;
        const uint16_t half = float_as_half(inside ? value(from, i, factor[t]) * scale : 0.0f);
        halves[size_t{row} * k_padded + (in_slots ? slot_of(i) : i)] = half;
        part[t] = half_as_float(half);
      });
      if (sums == nullptr) continue;
      block.warp_sum(part);
      block.threads([&](uint32_t t) {
        if (t % 32 != 0 || base + t >= k_padded) return;
        sums[size_t{(base + t) / 32} * pitch + row] = part[t];
      });
    }
    block.threads([&](uint32_t t) {
      if (t != 0) return;
      const bool finite = largest[t] < 0x7F800000u;
      inverse[row] = finite ? power_of_two(-half_exponent(largest[t])) : float_of(0x7FC00000u);
    });
  }

 private:
  /// A lane's four neighbours (weight_units.hpp) are two k of mma and the two 8 behind them.
  OUTRIDER_KERNEL uint32_t slot_of(uint32_t i) const {
    return i / 16 * 16 + i % 4 / 2 * 8 + i % 16 / 4 * 2 + i % 2;
  }
  OUTRIDER_KERNEL float value(const float* from, uint32_t i, float factor) const {
    return norm == nullptr ? from[i] : from[i] * factor * norm[i];
  }

  template <class Block, class Shared, class Local>
  OUTRIDER_KERNEL void find_factor(Block& block, const float* from, Shared& of_warps,
                                   Local& factor) const {
    if (norm == nullptr) {
      block.threads([&](uint32_t t) { factor[t] = 1.0f; });
      return;
    }
    auto squares = block.template local<float>();
    block.threads([&](uint32_t t) {
      squares[t] = 0;
      for (uint32_t i = t; i < k; i += k_threads) squares[t] = fused(from[i], from[i], squares[t]);
    });
    block.warp_sum(squares);
    block.threads([&](uint32_t t) {
      if (t % 32 == 0) of_warps.store(t / 32, squares[t]);
    });
    block.barrier();
    block.threads([&](uint32_t t) {
      float sum = 0;
      for (uint32_t w = 0; w < k_warps; ++w) sum += of_warps.load(w);
      factor[t] = 1.0f / square_root(sum / static_cast<float>(k) + eps);
    });
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
/// are exact in float, the sum is rounded once. A thread takes a group of 32 k, of which it reads
/// each lane's share.
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
    LaneUnit<type> lane;
    lane.read(table, id / k_tile_outputs, unit, output % 8 * 4 + quarter);
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t e = 0; e < 8; ++e) {
        const uint32_t i = unit * k_unit_k + 32 * g + e / 4 * 16 + 4 * quarter + e % 4;
        if (i < k) to[i] = lane.weight(g, h, e);
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
