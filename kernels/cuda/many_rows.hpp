#pragma once

#include "kernels/cuda/products.hpp"

namespace outrider::kernels::cuda {

/// Products of more rows: 128 outputs and 8 NT rows a block, 8 warps of 16 outputs and all rows.
/// The rows' halves come by copies that run ahead; while the tensor cores multiply a unit, a lane
/// brings the weights of the next one into halves and reads those behind it. Blocks: x tiles of
/// rows (those that run at the same time share weights), y the tiles of all targets, z some
/// segments.
template <WeightType type, uint32_t NT>
struct ManyRows : Products {
  static constexpr bool k_waits_itself = true;  ///< weights come first
  static constexpr uint32_t k_threads = 256;
  static constexpr uint32_t k_blocks = NT == 16 ? 1 : 2;
  static constexpr uint32_t k_rows = 8 * NT;
  static constexpr uint32_t k_tiles = 8;
  static constexpr uint32_t k_stages = 4;
  /// Turns of copies that are started before one is waited for: the last of the others' stages may
  /// still be read.
  static constexpr uint32_t k_turns_ahead = k_stages - 2;
  static constexpr uint32_t k_stage_units = 2;
  static constexpr uint32_t k_rows_bytes = k_rows * 128;  ///< of a unit
  static constexpr size_t k_shared_bytes =
      size_t{k_stages} * (k_stage_units * k_rows_bytes + 16) + k_rows * sizeof(float);

  explicit ManyRows(const Products& call) : Products(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = targets[target_of(block.y())];
    const uint32_t tile = (block.y() - target.first) * k_tiles;
    const uint32_t begin = block.z() * segments_of_block * k_segment_units;
    const uint32_t end = least(begin + segments_of_block * k_segment_units, units);
    auto rows =
        block.template shared<std::byte>(k_stages * k_stage_units * k_rows_bytes);  // [places]
    typename Block::template Copies<k_stages, k_turns_ahead> copies(block);
    auto inverse_of = block.template shared<float>(k_rows);
    auto lanes = block.template local<Lane>();
    for (uint32_t i = 0; i < 2; ++i) prefetch_segment(block, target.w, tile, begin, end, i);
    block.threads([&](uint32_t t) {
      Lane& lane = lanes[t];
      lane.tile = LaneTile<type>(target.w, least(tile + t / 32, target.w.tiles - 1), t % 32);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_units; ++i) {
        if (begin + i < end) lane.units[i].read(lane.tile, begin + i);
      }
      OUTRIDER_UNROLL
      for (float& sum : lane.finals) sum = 0;
      prepare(lane.units[0], lane.a[0]);
    });
    block.wait_for_previous();
    block.threads([&](uint32_t t) {  // seen behind the first barrier
      const uint32_t row = block.x() * k_rows + t;
      if (t < k_rows) inverse_of.store(t, row < m ? inverse[row] : 0.0f);
    });
    for (uint32_t turn = 0; turn < k_turns_ahead; ++turn) {
      start_copies(block, begin, end, turn, copies, rows);
    }
    for (uint32_t first = begin; first < end; first += k_segment_units) {
      prefetch_segment(block, target.w, tile, begin, end, (first - begin) / k_segment_units + 2);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_segment_units; ++i) {
        const uint32_t unit = first + i, turn = (unit - begin) / k_stage_units;
        if (unit >= end) break;
        if (i % k_stage_units == 0) {
          copies.wait(turn % k_stages, turn / k_stages);
          block.barrier();  // nobody reads the stage of two turns ago
          start_copies(block, begin, end, turn + k_turns_ahead, copies, rows);
        }
        const uint32_t place = turn % k_stages * k_stage_units + i % k_stage_units;
        OUTRIDER_UNROLL
        for (uint32_t step = 0; step < 4; ++step) {
          block.template start_rows_mma<NT>(
              rows, place * k_rows_bytes, step, i == 0 && step == 0,
              [&](uint32_t t) { return lanes[t].a[i % 2][step]; },
              [&](uint32_t t) { return lanes[t].sums; });
        }
        block.commit_rows_mma();
        block.template finish_rows_mma<NT, 1>([&](uint32_t t) { return lanes[t].sums; });
        block.threads([&](uint32_t t) {
          Lane& lane = lanes[t];
          // Behind the end are the last weights once more, which nothing reads.
          prepare(lane.units[(i + 1) % k_units], lane.a[(i + 1) % 2]);
          block.template keep_here<16>(&lane.a[(i + 1) % 2][0][0]);
          if (unit + k_units < end) lane.units[i % k_units].read(lane.tile, unit + k_units);
        });
      }
      block.template finish_rows_mma<NT, 0>([&](uint32_t t) { return lanes[t].sums; });
      end_segment(block, target, tile, first / k_segment_units, lanes);
    }
    if (workspace != nullptr) return;
    block.threads([&](uint32_t t) {
      if (target.accumulate) {
        finish_all<true>(block, t, target, tile, inverse_of, lanes[t]);
      } else {
        finish_all<false>(block, t, target, tile, inverse_of, lanes[t]);
      }
    });
  }

 private:
  using Unit = LaneUnit<type>;
  /// Units whose weights a lane holds, on their way or just arrived.
  static constexpr uint32_t k_units = Unit::k_coding.chunks <= 2 && NT != 8 ? 4 : 2;
  static_assert(k_segment_units % k_units == 0 && k_segment_units % k_stage_units == 0);

  struct Lane {
    LaneTile<type> tile;
    Unit units[k_units];
    uint32_t a[2][4][4];  ///< what the tensor cores read, of the unit under way and the next
    float sums[NT * 4];   ///< of the segment under way
    float finals[NT * 4];
  };

  template <class Block>
  OUTRIDER_KERNEL uint32_t row_of(Block& block, uint32_t t, uint32_t i) const {
    return block.x() * k_rows + i / 4 * 8 + t % 4 * 2 + i % 2;
  }
  OUTRIDER_KERNEL uint32_t output_of(uint32_t t, uint32_t tile, uint32_t i) const {
    return (tile + t / 32) * k_tile_outputs + t % 32 / 4 + i % 4 / 2 * 8;
  }

  /// Asks for the weights of the block's segment `number`, if there is one: those of a few segments
  /// at a time, since all blocks' together would not fit into the cache.
  template <class Block>
  OUTRIDER_KERNEL void prefetch_segment(Block& block, const MatrixView& w, uint32_t tile,
                                        uint32_t begin, uint32_t end, uint32_t number) const {
    const uint32_t first = begin + number * k_segment_units;
    if (first >= end) return;
    using Tile = LaneTile<type>;
    block.threads([&](uint32_t t) {
      if (t >= k_tiles || tile + t >= w.tiles) return;
      const size_t unit = size_t{tile + t} * w.units + first;
      const auto prefetch = [&](const std::byte* plane, uint32_t bytes_of_unit) {
        if (bytes_of_unit == 0) return;
        block.prefetch(plane + unit * bytes_of_unit,
                       least(k_segment_units, end - first) * bytes_of_unit);
      };
      prefetch(w.codes, Tile::k_codes_bytes);
      prefetch(w.high, Tile::k_high_bytes);
      prefetch(w.scales, Tile::k_scales_bytes);
    });
  }

  /// The rows' units of a turn, if there are any.
  template <class Block, class Copies, class Rows>
  OUTRIDER_KERNEL void start_copies(Block& block, uint32_t begin, uint32_t end, uint32_t turn,
                                    Copies& copies, const Rows& rows) const {
    const uint32_t unit = begin + turn * k_stage_units, stage = turn % k_stages;
    if (unit < end) {
      const size_t from = size_t{block.x()} * units + unit;
      copies.start(stage, rows, stage * k_stage_units * k_rows_bytes,
                   x + from * (k_rows * k_unit_k), least(k_stage_units, end - unit) * k_rows_bytes);
    }
    copies.close(stage);
  }

  template <bool accumulates, class Block, class Inverse>
  OUTRIDER_KERNEL void finish_all(Block& block, uint32_t t, const ProductTarget& target,
                                  uint32_t tile, const Inverse& inverse_of,
                                  const Lane& lane) const {
    float scale[2], bias[2];
    OUTRIDER_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t output = least(output_of(t, tile, 2 * h), target.w.outputs - 1);
      scale[h] = target.scale_of(output);
      bias[h] = target.bias_of(output);
    }
    const uint32_t output = output_of(t, tile, 0);
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < 2 * NT; ++i) {
      const uint32_t row = row_of(block, t, i / 2 * 4 + i % 2);
      if (row >= m) continue;
      const float of_row = inverse_of.load(row - block.x() * k_rows);
      float* const y = target.y + size_t{row} * target.w.outputs + output;
      OUTRIDER_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        if (output + 8 * h >= target.w.outputs) continue;
        const float value =
            finished(lane.finals[i / 2 * 4 + 2 * h + i % 2], scale[h], of_row, bias[h]);
        y[8 * h] = accumulates ? value + y[8 * h] : value;
      }
    }
  }

  OUTRIDER_KERNEL static void prepare(const Unit& unit, uint32_t (&a)[4][4]) {
    OUTRIDER_UNROLL
    for (uint32_t step = 0; step < 4; ++step) unit.fragment(step / 2, step % 2, a[step]);
  }

  template <class Block, class Lanes>
  OUTRIDER_KERNEL void end_segment(Block& block, const ProductTarget& target, uint32_t tile,
                                   uint32_t segment, Lanes& lanes) const {
    const size_t of_segment = target.workspace_at + size_t{segment} * m * target.w.outputs;
    block.threads([&](uint32_t t) {
      if (workspace == nullptr) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < 4 * NT; ++i) lanes[t].finals[i] += lanes[t].sums[i];
        return;
      }
      const uint32_t output = output_of(t, tile, 0);
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 2 * NT; ++i) {
        const uint32_t row = row_of(block, t, i / 2 * 4 + i % 2);
        if (row >= m) continue;
        float* const to = workspace + of_segment + size_t{row} * target.w.outputs + output;
        OUTRIDER_UNROLL
        for (uint32_t h = 0; h < 2; ++h) {
          if (output + 8 * h < target.w.outputs) {
            to[8 * h] = lanes[t].sums[i / 2 * 4 + 2 * h + i % 2];
          }
        }
      }
    });
  }
};

}  // namespace outrider::kernels::cuda
