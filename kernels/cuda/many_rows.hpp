#pragma once

#include "kernels/cuda/products.hpp"

namespace outrider::kernels::cuda {

/// Asks for a block's weights, so that the memory has work while the block waits for its rows.
template <WeightType type, class Block>
OUTRIDER_KERNEL void prefetch_tiles(Block& block, const MatrixView& w, uint32_t tile,
                                    uint32_t tiles, uint32_t begin, uint32_t end) {
  using Tile = LaneTile<type>;
  block.threads([&](uint32_t t) {
    if (t >= tiles || tile + t >= w.tiles) return;
    const size_t unit = size_t{tile + t} * w.units + begin;
    const auto prefetch = [&](const std::byte* plane, uint32_t bytes_of_unit) {
      if (bytes_of_unit == 0) return;
      block.prefetch(plane + unit * bytes_of_unit, (end - begin) * bytes_of_unit);
    };
    prefetch(w.codes, Tile::k_codes_bytes);
    prefetch(w.high, Tile::k_high_bytes);
    prefetch(w.scales, Tile::k_scales_bytes);
  });
}

/// Products of more rows: 128 outputs and 8 NT rows a block, 8 warps of 16 outputs and all rows.
/// The rows' halves come by copies that run ahead; while the tensor cores multiply one part of a
/// unit, whose codes share a scale, a lane brings the weights of the next one into halves. Blocks:
/// x the tiles of all targets, y tiles of rows, z some segments.
template <WeightType type, uint32_t NT>
struct ManyRows : Products {
  static constexpr bool k_waits_itself = true;  ///< weights come first
  static constexpr uint32_t k_threads = 256;
  static constexpr uint32_t k_rows = 8 * NT;
  static constexpr uint32_t k_tiles = 8;
  static constexpr uint32_t k_stages = NT == 16 ? 2 : 3;  ///< as an A100's memory allows
  static constexpr uint32_t k_stage_units = 2;
  static constexpr uint32_t k_rows_bytes = k_rows * 128;  ///< of a unit
  static constexpr uint32_t k_sums_bytes = unit_coding(type).offsets ? 2 * k_rows * 4 : 0;
  static constexpr size_t k_shared_bytes =
      k_stages * k_stage_units * (k_rows_bytes + k_sums_bytes) +
      size_t{k_threads} * NT * sizeof(Words4) + 16 * k_stages;

  explicit ManyRows(const Products& call) : Products(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = target_of(block.x());
    const uint32_t tile = (block.x() - target.first_block) * k_tiles;
    const uint32_t begin = block.z() * segments_of_block * k_segment_units;
    const uint32_t end = least(begin + segments_of_block * k_segment_units, units);
    prefetch_tiles<type>(block, target.w, tile, k_tiles, begin, end);
    Memory<Block> memory(block);
    typename Block::template Copies<k_stages> copies(block);
    auto lanes = block.template local<Lane>();
    block.threads([&](uint32_t t) {
      Lane& lane = lanes[t];
      lane.tile = LaneTile<type>(target.w, least(tile + t / 32, target.w.tiles - 1), t % 32);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i + 1 < k_units; ++i) {
        if (begin + i < end) lane.units[i].read(lane.tile, begin + i);
      }
      OUTRIDER_UNROLL
      for (float& total : lane.totals) total = 0;
    });
    block.wait_for_previous();
    for (uint32_t turn = 0; turn + 1 < k_stages; ++turn) {
      start_copies(block, begin, end, turn, copies, memory);
    }
    block.threads([&](uint32_t t) { prepare_part(0, lanes[t].units[0], lanes[t]); });
    for (uint32_t first = begin; first < end; first += k_units) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_units; ++i) {
        const uint32_t unit = first + i, turn = (unit - begin) / k_stage_units;
        if (unit >= end) break;
        if (i % k_stage_units == 0) {
          copies.wait(turn % k_stages, turn / k_stages);
          block.barrier();  // nobody reads the oldest stage
          start_copies(block, begin, end, turn + k_stages - 1, copies, memory);
        }
        block.threads([&](uint32_t t) {
          constexpr uint32_t k_later = k_units - 1;
          if (unit + k_later >= end) return;
          lanes[t].units[(i + k_later) % k_units].read(lanes[t].tile, unit + k_later);
        });
        const uint32_t place = turn % k_stages * k_stage_units + i % k_stage_units;
        multiply(block, place, i, memory, lanes);
      }
      const uint32_t segment = first / k_segment_units;
      if ((first + k_units) % k_segment_units == 0 || first + k_units >= end) {
        end_segment(block, target, tile, segment, segment == begin / k_segment_units, memory,
                    lanes);
      }
    }
    if (workspace != nullptr) return;
    block.threads([&](uint32_t t) {
      for (uint32_t nt = 0; nt < NT; ++nt) {
        const Words4 four = memory.finals.load(nt * k_threads + t);
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) {
          finish(target, row_of(block, t, nt, c), output_of(t, tile, c), float_of(four.w[c]));
        }
      }
    });
  }

 private:
  using Unit = LaneUnit<type>;
  /// Parts of a unit: 32 k, or 16 where these have scales of their own; steps of 16 k in each.
  static constexpr uint32_t k_parts = Unit::k_coding.sixteenths ? 4 : 2;
  static constexpr uint32_t k_steps = 4 / k_parts;
  /// Units that a lane holds: one is multiplied while the others are on their way.
  static constexpr uint32_t k_units = Unit::k_coding.chunks <= 2 ? 4 : 2;
  static_assert(k_segment_units % k_units == 0 && k_units % k_stage_units == 0);

  template <class Block>
  struct Memory {
    OUTRIDER_KERNEL explicit Memory(Block& block)
        : rows(block.template shared<std::byte>(k_stages * k_stage_units * k_rows_bytes)),
          sums(block.template shared<std::byte>(k_stages * k_stage_units * k_sums_bytes)),
          finals(block.template shared<Words4>(k_threads * NT)) {}

    typename Block::template Shared<std::byte> rows;  ///< [places][8 NT rows][128]
    typename Block::template Shared<std::byte> sums;  ///< [places][2 g][8 NT rows] float
    typename Block::template Shared<Words4> finals;   ///< [NT][threads]
  };
  struct Lane {
    LaneTile<type> tile;
    Unit units[k_units];
    uint32_t a[2][k_steps][4];  ///< what the tensor cores read, of the part under way and the next
    float c[NT * 4];            ///< sums of a part
    float scale[2], offset[2];  ///< of a part, [h]
    float totals[NT * 4];       ///< of a segment
  };

  template <class Block>
  OUTRIDER_KERNEL uint32_t row_of(Block& block, uint32_t t, uint32_t nt, uint32_t c) const {
    return block.y() * k_rows + 8 * nt + t % 4 * 2 + c % 2;
  }
  OUTRIDER_KERNEL uint32_t output_of(uint32_t t, uint32_t tile, uint32_t c) const {
    return (tile + t / 32) * k_tile_outputs + t % 32 / 4 + c / 2 * 8;
  }

  /// The rows' units of a turn, if there are any.
  template <class Block, class Copies, class M>
  OUTRIDER_KERNEL void start_copies(Block& block, uint32_t begin, uint32_t end, uint32_t turn,
                                    Copies& copies, const M& memory) const {
    const uint32_t unit = begin + turn * k_stage_units, stage = turn % k_stages;
    if (unit < end) {
      const uint32_t there = least(k_stage_units, end - unit), place = stage * k_stage_units;
      const size_t from = size_t{block.y()} * units + unit;
      copies.start(stage, memory.rows, place * k_rows_bytes, x + from * (k_rows * k_unit_k),
                   there * k_rows_bytes);
      if constexpr (k_sums_bytes > 0) {
        copies.start(stage, memory.sums, place * k_sums_bytes, sums + from * (2 * k_rows),
                     there * k_sums_bytes);
      }
    }
    copies.close(stage);
  }

  OUTRIDER_KERNEL void prepare_part(uint32_t part, const Unit& unit, Lane& lane) const {
    OUTRIDER_UNROLL
    for (uint32_t s = 0; s < k_steps; ++s) {
      const uint32_t step = part * k_steps + s;
      unit.fragment(step / 2, step % 2, lane.a[part % 2][s]);
    }
  }

  /// The rows at `place` by the lanes' `unit`.
  template <class Block, class M, class Lanes>
  OUTRIDER_KERNEL void multiply(Block& block, uint32_t place, uint32_t unit, const M& memory,
                                Lanes& lanes) const {
    OUTRIDER_UNROLL
    for (uint32_t part = 0; part < k_parts; ++part) {
      OUTRIDER_UNROLL
      for (uint32_t s = 0; s < k_steps; ++s) {
        block.template start_rows_mma<NT>(
            memory.rows, place * k_rows_bytes, part * k_steps + s, s == 0,
            [&](uint32_t t) { return lanes[t].a[part % 2][s]; },
            [&](uint32_t t) { return lanes[t].c; });
      }
      block.commit_rows_mma();
      const uint32_t g = part * k_steps / 2;
      block.threads([&](uint32_t t) {
        Lane& lane = lanes[t];
        OUTRIDER_UNROLL
        for (uint32_t h = 0; h < 2; ++h) {
          lane.scale[h] = lane.units[unit].scale(g, part * k_steps % 2, h);
          if constexpr (Unit::k_coding.offsets) lane.offset[h] = lane.units[unit].offset(g, h);
        }
        constexpr uint32_t k_words = k_steps * 4;
        const uint32_t next = (part + 1) % k_parts;
        prepare_part(next, lane.units[next > 0 ? unit : (unit + 1) % k_units], lane);
        block.template keep_here<k_words>(&lane.a[next % 2][0][0]);
      });
      block.template finish_rows_mma<NT>([&](uint32_t t) { return lanes[t].c; });
      block.threads([&](uint32_t t) { add_part(t, place, g, memory, lanes[t]); });
    }
  }

  template <class M>
  OUTRIDER_KERNEL void add_part(uint32_t t, uint32_t place, uint32_t g, const M& memory,
                                Lane& lane) const {
    OUTRIDER_UNROLL
    for (uint32_t nt = 0; nt < NT; ++nt) {
      Words2 both = {};
      if constexpr (Unit::k_coding.offsets) {
        both = memory.sums.template load_as_type<Words2>(place * k_sums_bytes +
                                                         (g * k_rows + 8 * nt + t % 4 * 2) * 4);
      }
      OUTRIDER_UNROLL
      for (uint32_t c = 0; c < 4; ++c) {
        float& total = lane.totals[4 * nt + c];
        total = fused(lane.c[4 * nt + c], lane.scale[c / 2], total);
        if constexpr (Unit::k_coding.offsets) {
          total = fused(float_of(both.w[c % 2]), lane.offset[c / 2], total);
        }
      }
    }
  }

  template <class Block, class M, class Lanes>
  OUTRIDER_KERNEL void end_segment(Block& block, const ProductTarget& target, uint32_t tile,
                                   uint32_t segment, bool first, const M& memory,
                                   Lanes& lanes) const {
    const size_t of_segment = target.workspace_at + size_t{segment} * m * target.w.outputs;
    block.threads([&](uint32_t t) {
      float* const totals = lanes[t].totals;
      OUTRIDER_UNROLL
      for (uint32_t nt = 0; nt < NT; ++nt) {
        if (workspace == nullptr) {
          Words4 four = {};
          if (!first) four = memory.finals.load(nt * k_threads + t);
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < 4; ++c) {
            four.w[c] = bits_of(float_of(four.w[c]) + totals[4 * nt + c]);
          }
          memory.finals.store(nt * k_threads + t, four);
        } else {
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < 4; ++c) {
            const uint32_t row = row_of(block, t, nt, c), output = output_of(t, tile, c);
            if (row < m && output < target.w.outputs) {
              workspace[of_segment + size_t{row} * target.w.outputs + output] = totals[4 * nt + c];
            }
          }
        }
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) totals[4 * nt + c] = 0;
      }
    });
  }
};

}  // namespace outrider::kernels::cuda
