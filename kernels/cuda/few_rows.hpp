#pragma once

#include "kernels/cuda/products.hpp"

namespace outrider::kernels::cuda {

/// Products of up to 8 rows: reading the weights is the work. A block takes a tile of 16 outputs,
/// whose weights come by copies of whole rounds; in a round each of its warps takes a segment, then
/// its threads add the warps' segments in ascending order. Blocks: x the tiles of all targets.
template <WeightType type>
struct FewRows : Products {
  static constexpr bool k_waits_itself = true;  ///< weights come first
  static constexpr uint32_t k_rows = 8;
  /// A round is about 32 KiB: several blocks of a multiprocessor keep the memory busy.
  static constexpr uint32_t k_warps = unit_coding(type).chunks <= 1   ? 8
                                      : unit_coding(type).chunks <= 2 ? 4
                                                                      : 2;
  static constexpr uint32_t k_threads = 32 * k_warps;
  static constexpr uint32_t k_blocks = unit_coding(type).high_bits > 0 && unit_coding(type).offsets
                                           ? 2
                                           : 3;
  static constexpr uint32_t k_sums = 128;  ///< of a warp
  static constexpr uint32_t k_round_units = k_warps * k_segment_units;
  static constexpr uint32_t k_stages = 2;
  static constexpr uint32_t k_tops_bytes =
      unit_coding(type).tops == Tops::rows ? 64 : k_round_units / 4 * top_bytes(unit_coding(type));
  static constexpr uint32_t k_stage_bytes =
      k_round_units * LaneTile<type>::k_unit_bytes + k_tops_bytes;

  explicit FewRows(const Products& call) : Products(call) {}

  static size_t shared_bytes(uint32_t units) {
    return k_warps * k_sums * sizeof(float) + stages_of(units) * k_stage_bytes + 16 * k_stages;
  }

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = target_of(block.x());
    const uint32_t tile = block.x() - target.first_block;
    auto of_warps = block.template shared<float>(k_warps * k_sums);
    auto stages = block.template shared<std::byte>(stages_of(units) * k_stage_bytes);
    typename Block::template Copies<k_stages> copies(block);
    for (uint32_t round = 0; round < k_stages; ++round) {
      start_round(target.w, tile, round, stages, copies);
    }
    auto lanes = block.template local<Lane>();
    block.threads([&](uint32_t t) {
      // Lanes of rows that are not there read the last row's.
      lanes[t].x = x + (least(t % 32 / 4, m - 1) * 4 + t % 4) * 8;
      OUTRIDER_UNROLL
      for (float& sum : lanes[t].finals) sum = 0;
    });
    block.wait_for_previous();
    const uint32_t rounds = (units + k_round_units - 1) / k_round_units;
    for (uint32_t round = 0; round < rounds; ++round) {
      multiply(block, round, stages, copies, lanes);
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          of_warps.store((t / 32 * 4 + i) * 32 + t % 32, lanes[t].totals[i]);
        }
      });
      block.barrier();  // nobody reads the stage
      start_round(target.w, tile, round + k_stages, stages, copies);
      block.threads([&](uint32_t t) { add_warps(t, round, of_warps, lanes[t]); });
    }
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_finals; ++i) {
        const uint32_t at = t + i * k_threads, lane = at % 32, c = at / 32;
        if (at >= k_sums) continue;
        finish(target, lane % 4 * 2 + c % 2, tile * k_tile_outputs + lane / 4 + c / 2 * 8,
               lanes[t].finals[i]);
      }
    });
  }

 private:
  using Unit = LaneUnit<type>;
  static constexpr uint32_t k_ahead = 2;  ///< units whose rows are read before they are needed
  static constexpr uint32_t k_finals = (k_sums + k_threads - 1) / k_threads;
  struct Lane {
    const uint16_t* x;
    float totals[4];
    float finals[k_finals];
  };
  struct RowsAhead {
    Words4 x[k_ahead + 1][2];       ///< [unit][g]
    float sums[k_ahead + 1][2][2];  ///< [unit][g][row of the lane's two]
  };
  struct Parts {
    Unit weights;
    uint32_t a[2][4];
    float c[4];
  };

  OUTRIDER_ALSO_KERNEL static uint32_t stages_of(uint32_t units) {
    return units <= k_round_units ? 1 : k_stages;
  }

  /// Copies of a round, if there is one.
  template <class Shared, class Copies>
  OUTRIDER_KERNEL void start_round(const MatrixView& w, uint32_t tile, uint32_t round,
                                   const Shared& stages, Copies& copies) const {
    using Plane = LaneTile<type>;
    const uint32_t first = round * k_round_units;
    static_assert(k_stages == 2, "more would wait for turns that were never closed");
    if (first >= units) return;
    const uint32_t there = least(k_round_units, units - first);
    const uint32_t stage = round % k_stages;
    const size_t unit = size_t{tile} * units + first;
    uint32_t to = stage * k_stage_bytes;
    const auto copy = [&](const std::byte* plane, uint32_t unit_bytes) {
      if (unit_bytes == 0) return;
      copies.start(stage, stages, to, plane + unit * unit_bytes, there * unit_bytes);
      to += k_round_units * unit_bytes;
    };
    copy(w.codes, Plane::k_codes_bytes);
    copy(w.high, Plane::k_high_bytes);
    copy(w.scales, Plane::k_scales_bytes);
    if constexpr (Unit::k_coding.tops == Tops::rows) {
      copies.start(stage, stages, to, w.tops + size_t{tile} * 64, 64);
    } else if constexpr (k_tops_bytes > 0) {
      copies.start(stage, stages, to, w.tops + unit / 4 * Plane::k_tops_bytes,
                   there / 4 * Plane::k_tops_bytes);
    }
    copies.close(stage);
  }

  template <class Shared>
  OUTRIDER_KERNEL void add_warps(uint32_t t, uint32_t round, const Shared& of_warps,
                                 Lane& lane) const {
    const uint32_t there = least(k_warps, segments() - round * k_warps);
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_finals; ++i) {
      if (t + i * k_threads >= k_sums) continue;
      for (uint32_t w = 0; w < there; ++w) {
        lane.finals[i] += of_warps.load(w * k_sums + t + i * k_threads);
      }
    }
  }

  /// Each warp's segment of a round.
  template <class Block, class Shared, class Copies, class Lanes>
  OUTRIDER_KERNEL void multiply(Block& block, uint32_t round, const Shared& stages, Copies& copies,
                                Lanes& lanes) const {
    auto rows = block.template local<RowsAhead>();
    auto parts = block.template local<Parts>();
    const uint32_t there = least(k_round_units, units - round * k_round_units);
    const auto in_round = [&](uint32_t t, uint32_t unit) {
      return t / 32 * k_segment_units + unit;
    };
    // What a segment lacks is read, but not used.
    const auto read_rows = [&](uint32_t t, uint32_t unit) {
      const uint32_t from = round * k_round_units + least(in_round(t, unit), there - 1);
      const uint32_t i = unit % (k_ahead + 1);
      OUTRIDER_UNROLL
      for (uint32_t g = 0; g < 2; ++g) {
        rows[t].x[i][g] = load_as<Words4>(lanes[t].x + (size_t{from} * 2 + g) * (k_rows * 32));
        if constexpr (Unit::k_coding.offsets) {
          OUTRIDER_UNROLL
          for (uint32_t j = 0; j < 2; ++j) {
            rows[t].sums[i][g][j] =
                sums[(size_t{from} * 2 + g) * k_rows + least(t % 4 * 2 + j, m - 1)];
          }
        }
        block.template keep_here<4>(rows[t].x[i][g].w);
      }
    };
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (float& total : lanes[t].totals) total = 0;
      OUTRIDER_UNROLL
      for (uint32_t unit = 0; unit < k_ahead; ++unit) read_rows(t, unit);
    });
    copies.wait(round % k_stages, round / k_stages);
    block.barrier();
    OUTRIDER_UNROLL
    for (uint32_t unit = 0; unit < k_segment_units; ++unit) {
      const auto active = [&](uint32_t t) { return in_round(t, unit) < there; };
      block.threads([&](uint32_t t) {
        if (unit + k_ahead < k_segment_units) read_rows(t, unit + k_ahead);
        const SharedTile<type, Shared> tile(stages, round % k_stages * k_stage_bytes, k_round_units,
                                            t % 32);
        if (active(t)) parts[t].weights.read(tile, in_round(t, unit));
      });
      OUTRIDER_UNROLL
      for (uint32_t g = 0; g < 2; ++g) {
        multiply_group(block, active, unit % (k_ahead + 1), g, rows, parts, lanes);
      }
    }
  }

  /// Group g of a unit, whose rows are the i-th ahead: two steps, and one scale or two.
  template <class Block, class Active, class Rows, class PartsOf, class Lanes>
  OUTRIDER_KERNEL void multiply_group(Block& block, const Active& active, uint32_t i, uint32_t g,
                                      Rows& rows, PartsOf& parts, Lanes& lanes) const {
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t s = 0; s < 2; ++s) parts[t].weights.fragment(g, s, parts[t].a[s]);
    });
    OUTRIDER_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      if (s == 0 || Unit::k_coding.sixteenths) {
        block.threads([&](uint32_t t) {
          OUTRIDER_UNROLL
          for (float& sum : parts[t].c) sum = 0;
        });
      }
      block.mma(
          active, [&](uint32_t t) { return parts[t].a[s]; },
          [&](uint32_t t) { return rows[t].x[i][g].w + 2 * s; },
          [&](uint32_t t) { return parts[t].c; });
      if (s == 0 && !Unit::k_coding.sixteenths) continue;
      block.threads([&](uint32_t t) {
        if (!active(t)) return;
        const Unit& weights = parts[t].weights;
        float* const total = lanes[t].totals;
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) {
          total[c] = fused(parts[t].c[c], weights.scale(g, s, c / 2), total[c]);
          if constexpr (Unit::k_coding.offsets) {
            total[c] = fused(rows[t].sums[i][g][c % 2], weights.offset(g, c / 2), total[c]);
          }
        }
      });
    }
  }
};

}  // namespace outrider::kernels::cuda
