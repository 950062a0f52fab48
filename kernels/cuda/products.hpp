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
  uint32_t pitch = 0;              ///< of sums, a multiple of 4
  const uint16_t* x = nullptr;     ///< [m, units * 64], PrepareRows
  const float* sums = nullptr;     ///< [units * 2, pitch], where offsets are
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

template <uint32_t MT, uint32_t NT>
struct Totals {
  float of[MT][NT][4];
};
template <WeightType type, uint32_t MT>
struct LaneUnits {
  LaneUnit<type> of[MT];
};

/// Adds one unit to the totals of each warp that is active: MT tiles of 16 outputs, whose lanes'
/// shares are in `units`, times NT tiles of 8 rows. `x_of(t, nt, g, s)` gives the four halves of
/// row 8 nt + t % 32 / 4 that thread t's fragment has, `sums_of(t, nt, g)` the sums of rows
/// 8 nt + t % 4 * 2 + {0, 1}.
template <WeightType type, uint32_t MT, uint32_t NT, class Block, class Units, class TotalsOf,
          class Active, class X, class Sums>
OUTRIDER_KERNEL void multiply_unit(Block& block, Units& units, TotalsOf& totals,
                                   const Active& active, const X& x_of, const Sums& sums_of) {
  using Unit = LaneUnit<type>;
  struct Weights {
    uint32_t a[MT][2][4];
    float scale[MT][2][2];  // [step][h]
    float offset[MT][2];
  };
  struct Part {
    uint32_t b[2][2];
    float sums[2];
    float c[4];
  };
  auto weights = block.template local<Weights>();
  auto part = block.template local<Part>();
  OUTRIDER_UNROLL
  for (uint32_t g = 0; g < 2; ++g) {
    block.threads([&](uint32_t t) {
      Weights& w = weights[t];
      OUTRIDER_UNROLL
      for (uint32_t mt = 0; mt < MT; ++mt) {
        const Unit& unit = units[t].of[mt];
        OUTRIDER_UNROLL
        for (uint32_t s = 0; s < 2; ++s) {
          unit.fragment(g, s, w.a[mt][s]);
          OUTRIDER_UNROLL
          for (uint32_t h = 0; h < 2; ++h) {
            w.scale[mt][s][h] = unit.scale(g, s, h);
            if constexpr (Unit::k_coding.offsets) w.offset[mt][h] = unit.offset(g, h);
          }
        }
      }
    });
    OUTRIDER_UNROLL
    for (uint32_t nt = 0; nt < NT; ++nt) {
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t s = 0; s < 2; ++s) {
          const Words2 halves = x_of(t, nt, g, s);
          part[t].b[s][0] = halves.w[0];
          part[t].b[s][1] = halves.w[1];
        }
        if constexpr (Unit::k_coding.offsets) sums_of(t, nt, g, part[t].sums);
      });
      OUTRIDER_UNROLL
      for (uint32_t mt = 0; mt < MT; ++mt) {
        OUTRIDER_UNROLL
        for (uint32_t s = 0; s < 2; ++s) {
          if (s == 0 || Unit::k_coding.sixteenths) {
            block.threads([&](uint32_t t) {
              OUTRIDER_UNROLL
              for (uint32_t i = 0; i < 4; ++i) part[t].c[i] = 0;
            });
          }
          block.mma(
              active, [&](uint32_t t) { return weights[t].a[mt][s]; },
              [&](uint32_t t) { return part[t].b[s]; }, [&](uint32_t t) { return part[t].c; });
          if (s == 0 && !Unit::k_coding.sixteenths) continue;
          block.threads([&](uint32_t t) {
            if (!active(t)) return;
            float* const total = totals[t].of[mt][nt];
            OUTRIDER_UNROLL
            for (uint32_t i = 0; i < 4; ++i) {
              total[i] = fused(part[t].c[i], weights[t].scale[mt][s][i / 2], total[i]);
              if constexpr (Unit::k_coding.offsets) {
                total[i] = fused(part[t].sums[i % 2], weights[t].offset[mt][i / 2], total[i]);
              }
            }
          });
        }
      }
    }
  }
}

template <class Block, class TotalsOf>
OUTRIDER_KERNEL void clear(Block& block, TotalsOf& totals) {
  block.threads([&](uint32_t t) { totals[t] = {}; });
}

/// Products of a few rows: reading the weights is the work. A block takes MT tiles of outputs and
/// up to 8 NT rows; each of its 8 warps takes whole segments, in rounds; after each round its
/// threads add the warps' segments in ascending order. Blocks: x the tiles of all targets.
template <WeightType type, uint32_t MT, uint32_t NT>
struct FewRows : Products {
  static constexpr bool k_waits_itself = true;  ///< weights come first
  static constexpr uint32_t k_threads = 256;
  static constexpr uint32_t k_warps = k_threads / 32;
  static constexpr uint32_t k_sums = MT * NT * 128;  ///< of a warp
  static constexpr size_t k_shared_bytes = k_warps * k_sums * sizeof(float);
  /// Units whose reads are under way at the same time.
  static constexpr uint32_t k_ahead = unit_coding(type).chunks * MT <= 2   ? 4
                                      : unit_coding(type).chunks * MT <= 4 ? 2
                                                                           : 1;

  explicit FewRows(const Products& call) : Products(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = target_of(block.x());
    const uint32_t tile = (block.x() - target.first_block) * MT;
    auto of_warps = block.template shared<float>(k_warps * k_sums);
    auto finals = block.template local<Finals>();
    block.threads([&](uint32_t t) { finals[t] = {}; });
    const uint32_t all = segments();
    for (uint32_t first = 0; first < all; first += k_warps) {
      auto totals = block.template local<Totals<MT, NT>>();
      clear(block, totals);
      for (uint32_t unit = 0; unit < k_segment_units; unit += k_ahead) {
        multiply_ahead(block, target, tile, first, unit, totals);
      }
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < MT * NT * 4; ++i) {
          of_warps.store((t / 32 * MT * NT * 4 + i) * 32 + t % 32,
                         totals[t].of[i / 4 / NT][i / 4 % NT][i % 4]);
        }
      });
      block.barrier();
      block.threads(
          [&](uint32_t t) { add_warps(t, least(k_warps, all - first), of_warps, finals[t]); });
      block.barrier();
    }
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_finals; ++i) {
        const uint32_t at = t + i * k_threads;
        if (at >= k_sums) continue;
        const uint32_t lane = at % 32, c = at / 32 % 4, nt = at / 128 % NT, mt = at / 128 / NT;
        finish(target, 8 * nt + lane % 4 * 2 + c % 2,
               (tile + mt) * k_tile_outputs + lane / 4 + c / 2 * 8, finals[t].of[i]);
      }
    });
  }

 private:
  static constexpr uint32_t k_finals = (k_sums + k_threads - 1) / k_threads;
  struct Finals {
    float of[k_finals];
  };

  template <class Shared>
  OUTRIDER_KERNEL void add_warps(uint32_t t, uint32_t warps, const Shared& of_warps,
                                 Finals& finals) const {
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_finals; ++i) {
      const uint32_t at = t + i * k_threads;
      if (at >= k_sums) continue;
      for (uint32_t w = 0; w < warps; ++w) finals.of[i] += of_warps.load(w * k_sums + at);
    }
  }

  /// Units unit … unit + k_ahead - 1 of each warp's segment: all are read before the first is used.
  template <class Block, class TotalsOf>
  OUTRIDER_KERNEL void multiply_ahead(Block& block, const ProductTarget& target, uint32_t tile,
                                      uint32_t first, uint32_t unit, TotalsOf& totals) const {
    struct Ahead {
      LaneUnits<type, MT> of[k_ahead];
    };
    auto ahead = block.template local<Ahead>();
    auto current = block.template local<LaneUnits<type, MT>>();
    const auto unit_of = [&](uint32_t t, uint32_t i) {
      return (first + t / 32) * k_segment_units + unit + i;
    };
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < k_ahead; ++i) {
        if (unit_of(t, i) >= units) continue;
        OUTRIDER_UNROLL
        for (uint32_t mt = 0; mt < MT; ++mt) {
          const uint32_t of_tile = least(tile + mt, target.w.tiles - 1);
          ahead[t].of[i].of[mt].read(target.w, of_tile, unit_of(t, i), t % 32);
        }
      }
    });
    if (first == 0 && unit == 0) block.wait_for_previous();
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_ahead; ++i) {
      block.threads([&](uint32_t t) { current[t] = ahead[t].of[i]; });
      multiply_unit<type, MT, NT>(
          block, current, totals, [&](uint32_t t) { return unit_of(t, i) < units; },
          [&](uint32_t t, uint32_t nt, uint32_t g, uint32_t s) {
            if (unit_of(t, i) >= units) return Words2{};
            const uint32_t row = least(8 * nt + t % 32 / 4, m - 1);
            return load_as<Words2>(x + (size_t{row} * units + unit_of(t, i)) * k_unit_k + 32 * g +
                                   16 * s + 4 * (t % 4));
          },
          [&](uint32_t t, uint32_t nt, uint32_t g, float* out) {
            if (unit_of(t, i) >= units) return;
            const size_t at = size_t{unit_of(t, i) * 2 + g} * pitch;
            OUTRIDER_UNROLL
            for (uint32_t j = 0; j < 2; ++j) {
              out[j] = sums[at + least(8 * nt + t % 4 * 2 + j, m - 1)];
            }
          });
    }
  }
};

/// Products of many rows: 128 outputs and 128 rows a block, 8 warps of 16 outputs and all rows. The
/// rows' halves, in the order of slots (PrepareRows), come by copies that run ahead; while the
/// tensor cores multiply one part of a unit, whose codes share a scale, a lane brings the weights
/// of the next one into halves. Blocks: x the tiles of all targets, y 128 rows, z some segments.
template <WeightType type>
struct ManyRows : Products {
  static constexpr bool k_waits_itself = true;  ///< weights come first
  static constexpr uint32_t k_threads = 256;
  static constexpr uint32_t NT = 16;
  static constexpr uint32_t k_rows = 8 * NT;
  static constexpr uint32_t k_tiles = 8;
  static constexpr uint32_t k_stages = 4;
  static constexpr uint32_t k_row_bytes = 128;  ///< of a unit
  static constexpr uint32_t k_rows_bytes = k_rows * k_row_bytes;
  static constexpr uint32_t k_sums_bytes = unit_coding(type).offsets ? 2 * k_rows * 4 : 0;
  static constexpr uint32_t k_stage_bytes = k_rows_bytes + k_sums_bytes;
  static constexpr size_t k_shared_bytes =
      k_stages * k_stage_bytes + size_t{k_threads} * NT * sizeof(Words4);

  explicit ManyRows(const Products& call) : Products(call) {}

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const ProductTarget& target = target_of(block.x());
    const uint32_t tile = (block.x() - target.first_block) * k_tiles;
    const uint32_t first_row = block.y() * k_rows;
    const uint32_t begin = block.z() * segments_of_block * k_segment_units;
    const uint32_t end = least(begin + segments_of_block * k_segment_units, units);
    auto stages = block.template shared<std::byte>(k_stages * k_stage_bytes);
    auto finals = block.template shared<Words4>(k_threads * NT);
    auto current = block.template local<LaneUnit<type>>();
    auto next = block.template local<LaneUnit<type>>();
    auto parts = block.template local<Parts>();
    auto totals = block.template local<Totals<1, NT>>();
    clear(block, totals);
    block.threads(
        [&](uint32_t t) { current[t].read(target.w, tile_of(target, tile, t), begin, t % 32); });
    block.wait_for_previous();
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t ahead = 0; ahead + 1 < k_stages; ++ahead) {
        if (begin + ahead < end) copy_rows(t, first_row, begin + ahead, ahead, stages);
        block.end_copies();
      }
      prepare_part(current[t], 0, parts[t]);
    });
    for (uint32_t unit = begin; unit < end; ++unit) {
      const uint32_t stage = (unit - begin) % k_stages * k_stage_bytes;
      block.threads([&](uint32_t) { block.template wait_for_copies<k_stages - 2>(); });
      block.publish_copies();  // there for all; and nobody reads the oldest stage
      block.threads([&](uint32_t t) {
        const uint32_t later = unit + k_stages - 1;
        if (later < end) copy_rows(t, first_row, later, (later - begin) % k_stages, stages);
        block.end_copies();
        if (unit + 1 < end) {
          next[t].read(target.w, tile_of(target, tile, t), unit + 1, t % 32);
        }
      });
      multiply(block, stages, stage, current, next, parts, totals);
      if (unit % k_segment_units == k_segment_units - 1 || unit + 1 == end) {
        const bool first = unit / k_segment_units == begin / k_segment_units;
        end_segment(block, target, tile, first_row, unit / k_segment_units, first, totals, finals);
      }
    }
    if (workspace != nullptr) return;
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t nt = 0; nt < NT; ++nt) {
        const Words4 four = finals.load(nt * k_threads + t);
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) {
          finish(target, row_of(t, first_row, nt, c), output_of(t, tile, c), float_of(four.w[c]));
        }
      }
    });
  }

 private:
  using Unit = LaneUnit<type>;
  /// Parts of a unit: 32 k, or 16 where these have scales of their own; steps of 16 k in each.
  static constexpr uint32_t k_parts = Unit::k_coding.sixteenths ? 4 : 2;
  static constexpr uint32_t k_steps = 4 / k_parts;
  /// What the tensor cores read of the part under way and of the next one, and their sums.
  struct Parts {
    uint32_t a[2][k_steps][4];
    float c[NT * 4];
    float scale[2], offset[2];  ///< [h]
  };

  OUTRIDER_KERNEL uint32_t row_of(uint32_t t, uint32_t first_row, uint32_t nt, uint32_t c) const {
    return first_row + 8 * nt + t % 4 * 2 + c % 2;
  }
  OUTRIDER_KERNEL uint32_t output_of(uint32_t t, uint32_t tile, uint32_t c) const {
    return (tile + t / 32) * k_tile_outputs + t % 32 / 4 + c / 2 * 8;
  }
  OUTRIDER_KERNEL uint32_t tile_of(const ProductTarget& target, uint32_t tile, uint32_t t) const {
    return least(tile + t / 32, target.w.tiles - 1);
  }

  /// 128 rows of one unit, 8 copies a row; rows behind the last repeat it.
  template <class Shared>
  OUTRIDER_KERNEL void copy_rows(uint32_t t, uint32_t first_row, uint32_t unit, uint32_t stage,
                                 const Shared& stages) const {
    OUTRIDER_UNROLL
    for (uint32_t i = t; i < k_rows * 8; i += k_threads) {
      const uint32_t row = least(first_row + i / 8, m - 1);
      stages.copy_async(
          stage * k_stage_bytes + i / 8 * k_row_bytes + swizzled_piece(i / 8, i % 8) * 16,
          x + (size_t{row} * units + unit) * k_unit_k + i % 8 * 8);
    }
    if constexpr (k_sums_bytes > 0) {
      // The pitch has room for whole blocks of rows: what stands behind m is not used.
      for (uint32_t i = t; i < k_sums_bytes / 16; i += k_threads) {
        const uint32_t g = i / (k_rows / 4), row = i % (k_rows / 4) * 4;
        stages.copy_async(stage * k_stage_bytes + k_rows_bytes + i * 16,
                          sums + size_t{unit * 2 + g} * pitch + first_row + row);
      }
    }
  }

  OUTRIDER_KERNEL void prepare_part(const Unit& unit, uint32_t part, Parts& to) const {
    OUTRIDER_UNROLL
    for (uint32_t s = 0; s < k_steps; ++s) {
      const uint32_t step = part * k_steps + s;
      unit.fragment(step / 2, step % 2, to.a[part % 2][s]);
    }
  }

  template <class Block, class Shared, class Units, class PartsOf, class TotalsOf>
  OUTRIDER_KERNEL void multiply(Block& block, const Shared& stages, uint32_t stage, Units& current,
                                Units& next, PartsOf& parts, TotalsOf& totals) const {
    OUTRIDER_UNROLL
    for (uint32_t part = 0; part < k_parts; ++part) {
      OUTRIDER_UNROLL
      for (uint32_t s = 0; s < k_steps; ++s) {
        block.template start_rows_mma<NT>(
            stages, stage, part * k_steps + s, s == 0,
            [&](uint32_t t) { return parts[t].a[part % 2][s]; },
            [&](uint32_t t) { return parts[t].c; });
      }
      block.commit_rows_mma();
      const uint32_t g = part * k_steps / 2;
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t h = 0; h < 2; ++h) {
          parts[t].scale[h] = current[t].scale(g, part * k_steps % 2, h);
          if constexpr (Unit::k_coding.offsets) parts[t].offset[h] = current[t].offset(g, h);
        }
        if (part + 1 == k_parts) current[t] = next[t];
        prepare_part(current[t], (part + 1) % k_parts, parts[t]);
      });
      block.finish_rows_mma();
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t nt = 0; nt < NT; ++nt) {
          Words2 both = {};
          if constexpr (Unit::k_coding.offsets) {
            const uint32_t row = 8 * nt + t % 4 * 2;
            both =
                stages.template load_as_type<Words2>(stage + k_rows_bytes + (g * k_rows + row) * 4);
          }
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < 4; ++c) {
            float& total = totals[t].of[0][nt][c];
            total = fused(parts[t].c[4 * nt + c], parts[t].scale[c / 2], total);
            if constexpr (Unit::k_coding.offsets) {
              total = fused(float_of(both.w[c % 2]), parts[t].offset[c / 2], total);
            }
          }
        }
      });
    }
  }

  template <class Block, class TotalsOf, class Finals>
  OUTRIDER_KERNEL void end_segment(Block& block, const ProductTarget& target, uint32_t tile,
                                   uint32_t first_row, uint32_t segment, bool first,
                                   TotalsOf& totals, const Finals& finals) const {
    float* const to = workspace + target.workspace_at + size_t{segment} * m * target.w.outputs;
    block.threads([&](uint32_t t) {
      OUTRIDER_UNROLL
      for (uint32_t nt = 0; nt < NT; ++nt) {
        if (workspace == nullptr) {
          Words4 four = {};
          if (!first) four = finals.load(nt * k_threads + t);
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < 4; ++c) {
            four.w[c] = bits_of(float_of(four.w[c]) + totals[t].of[0][nt][c]);
          }
          finals.store(nt * k_threads + t, four);
          continue;
        }
        OUTRIDER_UNROLL
        for (uint32_t c = 0; c < 4; ++c) {
          const uint32_t row = row_of(t, first_row, nt, c), output = output_of(t, tile, c);
          if (row < m && output < target.w.outputs) {
            to[size_t{row} * target.w.outputs + output] = totals[t].of[0][nt][c];
          }
        }
      }
    });
    clear(block, totals);
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
