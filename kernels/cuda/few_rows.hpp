#pragma once

#include "kernels/cuda/products.hpp"

namespace outrider::kernels::cuda {

/// Where a block is in its share of a call's tiles: at a segment of a tile of a target.
struct RoundCursor {
  uint32_t target = 0;
  uint32_t tile = 0;  ///< of the target
  uint32_t segment = 0;
  uint32_t left = 0;  ///< tiles of the block's share, this one with them; 0: at its end
};

/// Products of up to 8 rows: reading the weights is the work. A block takes a share of all tiles of
/// 16 outputs, one after the other, by rounds in which each of its warps takes a segment. The
/// weights of the next round come by copies while one is multiplied, whatever tiles they belong
/// to. Blocks: x two for each multiprocessor, of `warps` warps each.
template <WeightType type>
struct FewRows : Products {
  static constexpr bool k_waits_itself = true;  ///< weights come first
  static constexpr uint32_t k_rows = 8;
  static constexpr uint32_t k_sums = 128;  ///< of a tile
  static constexpr uint32_t k_stages = 2;
  /// The most warps. Two blocks share a multiprocessor, so that one computes while the other waits;
  /// both have room for two rounds in 227 KiB, and an A100 for one of them.
  static constexpr uint32_t k_blocks = 2;
  static constexpr uint32_t k_warps = LaneTile<type>::k_unit_bytes < 800    ? 8
                                      : LaneTile<type>::k_unit_bytes < 900  ? 7
                                      : LaneTile<type>::k_unit_bytes < 1100 ? 6
                                      : LaneTile<type>::k_unit_bytes < 2100 ? 3
                                                                            : 1;
  static constexpr uint32_t k_threads = 32 * k_warps;
  static constexpr uint32_t k_round_units = k_warps * k_segment_units;  ///< at most

  explicit FewRows(const Products& call) : Products(call) {}

  static constexpr uint32_t k_stage_bytes =
      SharedTile<type, std::byte>::bytes(k_round_units, k_warps);
  static constexpr size_t k_shared_bytes =
      (k_warps + 2) * k_sums * sizeof(float) + k_stages * (k_stage_bytes + 16);

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    using Tile = SharedTile<type, typename Block::template Shared<std::byte>>;
    auto of_warps = block.template shared<float>(k_warps * k_sums);
    auto unfinished = block.template shared<float>(2 * k_sums);  // of even and odd rounds
    auto stages = block.template shared<std::byte>(k_stages * k_stage_bytes);
    typename Block::template Copies<k_stages, k_stages> copies(block);
    RoundCursor now = share_of(block.x());
    RoundCursor ahead = now;
    for (uint32_t round = 0; round < k_stages; ++round) {
      start_round(ahead, round, stages, copies);
    }
    auto lanes = block.template local<Lane>();
    block.wait_for_previous();
    for (uint32_t round = 0; now.left > 0; ++round) {
      const Round jobs = round_at(now);
      block.threads([&](uint32_t t) { begin_round(t, now, jobs, lanes[t]); });
      if (jobs.count == warps && units % k_segment_units == 0) {
        multiply<true, Tile>(block, jobs, round, stages, copies, lanes);
      } else {
        multiply<false, Tile>(block, jobs, round, stages, copies, lanes);
      }
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          of_warps.store((t / 32 * 4 + i) * 32 + t % 32, lanes[t].sums[i]);
        }
      });
      block.barrier();  // nobody reads the stage
      start_round(ahead, round + k_stages, stages, copies);
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < k_slots; ++i) {
          add_segments(t, i, now, jobs, round, of_warps, unfinished, lanes[t].slots[i]);
        }
      });
      go_on(now, jobs);
    }
  }

 private:
  using Unit = LaneUnit<type>;
  static constexpr uint32_t k_ahead = 2;  ///< units whose rows are read before they are needed
  static constexpr uint32_t k_slots = k_sums / 32;
  /// Consecutive segments of a target's tiles, one for a warp.
  struct Round {
    uint32_t count, tiles, first_unit, units;
  };
  /// A sum of a round's tiles that a thread adds up, and what makes it a result.
  struct Slot {
    float* y;  ///< null: none of the call's, or its tile is not finished in this round
    float scale, inverse, bias, old;
  };
  struct Lane {
    const uint16_t* x;           ///< where the rows of the segment begin
    uint32_t tile;               ///< of the round, where the warp's segment is
    uint32_t first_unit, units;  ///< of that tile
    Slot slots[k_slots];
    float sums[4];
    Words4 rows[k_ahead + 1][2];  ///< [unit][g]
    Unit weights;
    uint32_t a[4];
  };

  OUTRIDER_KERNEL uint32_t tiles_of(uint32_t target) const { return targets[target].w.tiles; }
  /// Whole tiles in so many segments (under 2^16).
  OUTRIDER_KERNEL uint32_t whole_tiles(uint32_t of_segments) const {
    return static_cast<uint32_t>(of_segments * segments_reciprocal >> 32);
  }
  /// Tiles of all targets are numbered through; blocks take them in equal shares.
  OUTRIDER_KERNEL RoundCursor share_of(uint32_t block) const {
    const uint32_t tiles = targets[count - 1].first + tiles_of(count - 1);
    const auto begin = static_cast<uint32_t>(uint64_t{block} * tiles / blocks);
    const auto end = static_cast<uint32_t>((uint64_t{block} + 1) * tiles / blocks);
    RoundCursor cursor;
    cursor.left = end - begin;
    cursor.target = target_of(begin);
    cursor.tile = begin - targets[cursor.target].first;
    return cursor;
  }
  OUTRIDER_KERNEL Round round_at(const RoundCursor& at) const {
    const uint32_t tiles = least(least(at.left, tiles_of(at.target) - at.tile), warps);
    Round round;
    round.count = least(warps, tiles * segments() - at.segment);
    const uint32_t end = at.segment + round.count;  // counted from the first tile's start
    const uint32_t whole = whole_tiles(end), rest = end - whole * segments();
    round.tiles = whole + (rest > 0 ? 1 : 0);
    round.first_unit = at.segment * k_segment_units;
    round.units = whole * units + rest * k_segment_units - round.first_unit;
    return round;
  }
  OUTRIDER_KERNEL void go_on(RoundCursor& at, const Round& round) const {
    const uint32_t end = at.segment + round.count, whole = whole_tiles(end);
    at.segment = end - whole * segments();
    at.tile += whole;
    at.left -= whole;
    if (at.left > 0 && at.tile == tiles_of(at.target)) {
      ++at.target;
      at.tile = 0;
    }
  }

  /// Copies of the round at the cursor, if there is one, which goes on to the next.
  template <class Shared, class Copies>
  OUTRIDER_KERNEL void start_round(RoundCursor& at, uint32_t number, const Shared& stages,
                                   Copies& copies) const {
    using Plane = LaneTile<type>;
    const uint32_t stage = number % k_stages;
    if (at.left > 0) {
      const Round round = round_at(at);
      const MatrixView& w = targets[at.target].w;
      const size_t unit = size_t{at.tile} * units + round.first_unit;
      uint32_t to = stage * k_stage_bytes;
      const auto copy = [&](const std::byte* plane, uint32_t unit_bytes) {
        if (unit_bytes == 0) return;
        copies.start(stage, stages, to, plane + unit * unit_bytes, round.units * unit_bytes);
        to += k_round_units * unit_bytes;
      };
      copy(w.codes, Plane::k_codes_bytes);
      copy(w.high, Plane::k_high_bytes);
      copy(w.scales, Plane::k_scales_bytes);
      if constexpr (Plane::k_tops_bytes > 0) {
        copies.start(stage, stages, to, w.tops + unit / 4 * Plane::k_tops_bytes,
                     round.units / 4 * Plane::k_tops_bytes);
      }
      if constexpr (Plane::k_coding.is_wide) {
        copies.start(stage, stages, to, w.row_scales + size_t{at.tile} * k_tile_outputs,
                     round.tiles * k_tile_outputs * 4);
      }
      go_on(at, round);
    }
    copies.close(stage);
  }

  /// Finds the warp's segment, and reads what the thread's results need while it is multiplied.
  OUTRIDER_KERNEL void begin_round(uint32_t t, const RoundCursor& at, const Round& round,
                                   Lane& lane) const {
    const uint32_t segment = at.segment + least(t / 32, round.count - 1);
    lane.tile = whole_tiles(segment);
    lane.first_unit = (segment - lane.tile * segments()) * k_segment_units;
    lane.units = t / 32 < round.count ? least(k_segment_units, units - lane.first_unit) : 0;
    // Lanes of rows that are not there read the last row's.
    lane.x = x + (least(t % 32 / 4, m - 1) * 4 + t % 4) * 8 +
             size_t{lane.first_unit} * (k_rows * k_unit_k);
    OUTRIDER_UNROLL
    for (float& sum : lane.sums) sum = 0;
    const ProductTarget& target = targets[at.target];
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_slots; ++i) {
      Slot& slot = lane.slots[i];
      slot.y = nullptr;
      const uint32_t number = t + i * 32 * warps, tile = number / k_sums, place = number % k_sums;
      if ((tile + 1) * segments() - at.segment > round.count) continue;
      const uint32_t row = place % 4 * 2 + place / 32 % 2;
      const uint32_t output = (at.tile + tile) * k_tile_outputs + place % 32 / 4 + place / 64 * 8;
      if (row >= m || output >= target.w.outputs) continue;
      slot.y = target.y + size_t{row} * target.w.outputs + output;
      slot.scale = target.scale_of(output);
      slot.inverse = inverse[row];
      slot.bias = target.bias_of(output);
      slot.old = target.accumulate ? *slot.y : 0.0f;
    }
  }

  /// Each warp's segment of a round. With `whole` all have one, of eight units.
  template <bool whole, class Tile, class Block, class Shared, class Copies, class Lanes>
  OUTRIDER_KERNEL void multiply(Block& block, const Round& round, uint32_t number,
                                const Shared& stages, Copies& copies, Lanes& lanes) const {
    // What a segment lacks is read, but not used.
    const auto read_rows = [&](uint32_t t, uint32_t unit) {
      const uint32_t there = whole ? unit : least(unit, units - 1 - lanes[t].first_unit);
      OUTRIDER_UNROLL
      for (uint32_t g = 0; g < 2; ++g) {
        Words4& words = lanes[t].rows[unit % (k_ahead + 1)][g];
        words = load_as<Words4>(lanes[t].x + (there * 2 + g) * (k_rows * 32));
        block.template keep_here<4>(words.w);
      }
    };
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t unit = 0; unit < k_ahead; ++unit) read_rows(t, unit);
    });
    copies.wait(number % k_stages, number / k_stages);
    block.barrier();
    OUTRIDER_UNROLL
    for (uint32_t unit = 0; unit < k_segment_units; ++unit) {
      const auto active = [&](uint32_t t) { return whole || unit < lanes[t].units; };
      block.threads([&](uint32_t t) {
        if (unit + k_ahead < k_segment_units) read_rows(t, unit + k_ahead);
        if (!active(t)) return;
        Lane& lane = lanes[t];
        const Tile tile(stages, number % k_stages * k_stage_bytes, k_round_units, lane.tile,
                        lane.tile * units + lane.first_unit - round.first_unit, t % 32);
        lane.weights.read(tile, unit);
      });
      OUTRIDER_UNROLL
      for (uint32_t step = 0; step < 4; ++step) {
        block.threads(
            [&](uint32_t t) { lanes[t].weights.fragment(step / 2, step % 2, lanes[t].a); });
        block.mma(
            active, [&](uint32_t t) { return lanes[t].a; },
            [&](uint32_t t) {
              return lanes[t].rows[unit % (k_ahead + 1)][step / 2].w + step % 2 * 2;
            },
            [&](uint32_t t) { return lanes[t].sums; });
      }
    }
  }

  /// Adds the round's segments to what their tile has in the thread's slot `i`; whole tiles are
  /// finished.
  template <class Shared>
  OUTRIDER_KERNEL void add_segments(uint32_t t, uint32_t i, const RoundCursor& at,
                                    const Round& round, uint32_t number, const Shared& of_warps,
                                    const Shared& unfinished, const Slot& slot) const {
    const uint32_t place = (t + i * 32 * warps) % k_sums, tile = (t + i * 32 * warps) / k_sums;
    if (tile >= round.tiles) return;
    const bool goes_on = tile == 0 && at.segment > 0;
    const uint32_t begin = tile == 0 ? 0 : tile * segments() - at.segment;
    const uint32_t end = (tile + 1) * segments() - at.segment;
    float total = goes_on ? unfinished.load((number + 1) % 2 * k_sums + place) : 0.0f;
    for (uint32_t w = begin; w < least(end, round.count); ++w) {
      total += of_warps.load(w * k_sums + place);
    }
    if (end > round.count) {
      unfinished.store(number % 2 * k_sums + place, total);
    } else if (slot.y != nullptr) {
      const float value = finished(total, slot.scale, slot.inverse, slot.bias);
      *slot.y = targets[at.target].accumulate ? value + slot.old : value;
    }
  }
};

}  // namespace outrider::kernels::cuda
