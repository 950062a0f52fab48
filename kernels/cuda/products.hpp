#pragma once

#include "kernels/cuda/weight_units.hpp"

/// Products of rows with packed matrices, by tensor cores (mma.m16n8k16: halves, sums in float).
///
/// The order of an output, whatever the rows, tiles and blocks of the call: k goes in groups of 32
/// (Q6_K: 16), ascending. A group's codes, exact in half, times the row's halves are summed by one
/// mma after the other from zero; then total = fma(sum, scale, total), with offsets
/// total = fma(the row's sum, offset, total). A segment of 512 k begins again from zero; segments
/// are added in ascending order. At the end times the row's inverse, plus bias, plus old y.
/// So decode, verification and prefill give the same bits, and so does each split over blocks.
namespace outrider::kernels::cuda {

inline constexpr uint32_t k_segment_units = 8;
inline constexpr uint32_t k_targets_max = 8;

/// y = W x of one matrix.
struct ProductTarget {
  MatrixView w;
  const float* bias = nullptr;
  float* y = nullptr;  ///< [m, outputs]
  bool accumulate = false;
  uint32_t first_block = 0;  ///< in x of the launch
  size_t workspace_at = 0;   ///< floats; its [segments][m][outputs], where segments are split
};

struct Products {
  ProductTarget targets[k_targets_max];
  uint32_t count = 0;
  WeightType weight_type = WeightType::f32;  ///< of all targets
  uint32_t m = 0;
  uint32_t units = 0;              ///< of k
  const uint16_t* x = nullptr;     ///< as RowTiles says
  const float* sums = nullptr;     ///< likewise, where offsets are
  const float* inverse = nullptr;  ///< [m]
  float* workspace = nullptr;      ///< null: a block takes all segments
  uint32_t segments_of_block = 0;  ///< consecutive, z of the launch chooses which

  OUTRIDER_KERNEL uint32_t segments() const {
    return (units + k_segment_units - 1) / k_segment_units;
  }
  OUTRIDER_KERNEL const ProductTarget& target_of(uint32_t block) const {
    uint32_t i = 0;
    while (i + 1 < count && targets[i + 1].first_block <= block) ++i;
    return targets[i];
  }
  /// What becomes of a finished sum.
  OUTRIDER_KERNEL void finish(const ProductTarget& target, uint32_t row, uint32_t output,
                              float total) const {
    if (row >= m || output >= target.w.outputs) return;
    float* const y = target.y + size_t{row} * target.w.outputs + output;
    float value = total * inverse[row];
    if (target.bias != nullptr) value += target.bias[output];
    if (target.accumulate) value += *y;
    *y = value;
  }
};

/// Asks for a block's weights, so that the memory has work while the block waits for its rows.
template <WeightType type, class Block>
OUTRIDER_KERNEL void prefetch_tiles(Block& block, const MatrixView& w, uint32_t tile,
                                    uint32_t tiles, uint32_t begin, uint32_t end) {
  using Tile = LaneTile<type>;
  block.threads([&](uint32_t t) {
    if (t >= tiles || tile + t >= w.tiles) return;
    const size_t unit = size_t{tile + t} * w.units + begin;
    const auto prefetch = [&](const std::byte* plane, uint32_t bytes_of_unit) {
      if (bytes_of_unit > 0)
        block.prefetch(plane + unit * bytes_of_unit, (end - begin) * bytes_of_unit);
    };
    prefetch(w.codes, Tile::k_codes_bytes);
    prefetch(w.high, Tile::k_high_bytes);
    prefetch(w.scales, Tile::k_scales_bytes);
  });
}

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
  static constexpr uint32_t k_stages = NT == 16 ? 2 : 3;
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
        if (unit % k_segment_units == k_segment_units - 1 || unit + 1 == end) {
          const bool is_first = unit / k_segment_units == begin / k_segment_units;
          end_segment(block, target, tile, unit / k_segment_units, is_first, memory, lanes);
        }
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
      block.finish_rows_mma();
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
    float* const to = workspace + target.workspace_at + size_t{segment} * m * target.w.outputs;
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
              to[size_t{row} * target.w.outputs + output] = totals[4 * nt + c];
            }
          }
        }
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) totals[4 * nt + c] = 0;
      }
    });
  }
};

/// Adds the segments that ManyRows left in the workspace, in ascending order. A thread an output;
/// blocks: x 256 outputs of a target, y a row, z the target.
struct AddSegments : Products {
  static constexpr uint32_t k_threads = 256;

  AddSegments() = default;
  explicit AddSegments(const Products& call) : Products(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = targets[block.z()];
    block.threads([&](uint32_t t) {
      const uint32_t output = block.x() * k_threads + t;
      const uint32_t row = block.y();
      if (output >= target.w.outputs) return;
      float total = 0;
      for (uint32_t s = 0; s < segments(); ++s) {
        total += workspace[target.workspace_at + (size_t{s} * m + row) * target.w.outputs + output];
      }
      finish(target, row, output, total);
    });
  }
};

}  // namespace outrider::kernels::cuda
