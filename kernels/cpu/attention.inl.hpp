#pragma once

#include "kernels/cpu/attention_chunk.inl.hpp"

/// Attention of work items: their chunks in ascending order, merged or left for `combine`.
namespace outrider::kernels::OUTRIDER_ISA {

/// What the chunks so far and the next one weigh in their union, per query.
struct MergeWeights {
  float keep[k_queries_max];
  float add[k_queries_max];
};

/// Maxima and sums of n queries over the chunks so far take up the next chunk's.
static void merge_sums(float* max_io, float* sum_io, const float* max_in, const float* sum_in,
                       size_t n, MergeWeights& weights) {
  for (size_t i = 0; i < n; i += 16) {
    const size_t count = min_of(16, n - i);
    const Vec old_max = load_first(max_io + i, count);
    const Vec new_max = load_first(max_in + i, count);
    const Vec top = max(old_max, new_max);
    const Vec keep = exp2_of_negative(old_max - top);
    const Vec add = exp2_of_negative(new_max - top);
    store_first(max_io + i, top, count);
    store_first(sum_io + i,
                fma(load_first(sum_io + i, count), keep, load_first(sum_in + i, count) * add),
                count);
    store_first(weights.keep + i, keep, count);
    store_first(weights.add + i, add, count);
  }
}

/// Likewise the weighted values of one query.
OUTRIDER_INLINE void merge_values(float* values, const float* values_in, float keep, float add,
                                  size_t width) {
  for (size_t d = 0; d < width; d += 16) {
    const Vec in = load(values_in + d) * broadcast(add);
    store(values + d, fma(load(values + d), broadcast(keep), in));
  }
}

/// out = values / sum. Adding zero turns -0 into +0: whether a sum of zeros is negative could
/// depend on masked positions.
OUTRIDER_INLINE void write_out(const float* values, float sum, const KvLayer& kv, float* out) {
  const Vec inverse = broadcast(1.0f / read_factor(kv.v_kind) / sum);
  for (size_t d = 0; d < kv.head_dim; d += 16) {
    store_first(out + d, load(values + d) * inverse + zero(), min_of(16, kv.head_dim - d));
  }
}

OUTRIDER_INLINE size_t query_at(const AttentionArgs& a, const AttentionUnit& unit, size_t j) {
  const size_t row = unit.first_row + j / unit.heads;
  return (row * a.heads + unit.first_head + j % unit.heads) * a.kv.head_dim;
}

/// The queries of an item's units, scaled so that scores come out as powers of two, or their codes
/// if keys are codes. How many.
static size_t load_queries(const AttentionArgs& a, const AttentionItem& item, AttentionScratch& s) {
  const Vec scale = broadcast(a.scale * 0x1.715476p+0f / read_factor(a.kv.k_kind));
  const size_t head_dim = a.kv.head_dim;
  const size_t width = whole_lanes(head_dim);
  size_t count = 0;
  for (size_t u = item.first_unit; u < item.first_unit + item.units; ++u) {
    const AttentionUnit& unit = a.units[u];
    for (size_t j = 0; j < unit.rows * unit.heads; ++j, ++count) {
      const float* q = a.q + query_at(a, unit, j);
      const auto scaled = [&](size_t d) __attribute__((always_inline)) {
        return load_first(q + d, min_of(16, head_dim - d)) * scale;
      };
      if (kv_kind_info(a.kv.k_kind).has_scales) {
        int16_t* codes = s.codes.q + count * width;
        s.codes.q_scale[count] = quantize_values(
            scaled, width, [&](size_t d, Ints code) __attribute__((always_inline)) {
              store_int16(codes + d, code);
            });
        continue;
      }
      for (size_t d = 0; d < head_dim; d += 16) {
        store_first(s.q + count * head_dim + d, scaled(d), min_of(16, head_dim - d));
      }
    }
  }
  return count;
}

/// Queries [first, end) of a unit have a part in a chunk: rows before them end before it, the
/// window of rows behind them begins after it. It is the first chunk of those from `fresh` on.
struct ChunkQueries {
  size_t first;
  size_t fresh;
  size_t end;
};
OUTRIDER_INLINE ChunkQueries queries_of(const AttentionUnit& unit, size_t chunk) {
  const size_t base = chunk * k_chunk_positions;
  const auto before = [&](size_t position) __attribute__((always_inline)) {
    if (position <= unit.first_position) return size_t{0};
    return min_of(unit.rows, position - unit.first_position) * unit.heads;
  };
  const size_t first = before(base);
  return {.first = first,
          .fresh = base == 0 ? first : before(base + unit.window - 1),
          .end = before(base + k_chunk_positions + unit.window - 1)};
}

/// One chunk of an item whose units have partial results.
static void store_partials(const AttentionArgs& a, const AttentionItem& item, size_t chunk,
                           const ChunkResult& result) {
  const size_t width = whole_lanes(a.kv.head_dim);
  const size_t stride = partial_floats(a.kv.head_dim);
  size_t at = 0;
  for (size_t u = item.first_unit; u < item.first_unit + item.units; ++u) {
    const AttentionUnit& unit = a.units[u];
    const size_t queries = unit.rows * unit.heads;
    float* partials = unit.partials + (chunk - unit.first_chunk) * queries * stride;
    const ChunkQueries part = queries_of(unit, chunk);
    for (size_t j = part.first; j < part.end; ++j) {
      float* partial = partials + j * stride;
      partial[0] = result.max[at + j];
      partial[1] = result.sum[at + j];
      __builtin_memcpy(partial + 16, result.values + (at + j) * width, width * sizeof(float));
    }
    at += queries;
  }
}

/// The next chunk of a unit that one item covers is merged into the total.
static void merge_chunk(const ChunkQueries& part, size_t width, const ChunkResult& result,
                        ChunkResult& total) {
  const size_t first = part.first;
  MergeWeights weights;
  merge_sums(total.max + first, total.sum + first, result.max + first, result.sum + first,
             part.fresh - first, weights);
  for (size_t j = first; j < part.fresh; ++j) {
    merge_values(total.values + j * width, result.values + j * width, weights.keep[j - first],
                 weights.add[j - first], width);
  }
  for (size_t j = part.fresh; j < part.end; ++j) {
    total.max[j] = result.max[j];
    total.sum[j] = result.sum[j];
    __builtin_memcpy(total.values + j * width, result.values + j * width, width * sizeof(float));
  }
}

static void attend(const AttentionArgs& a, const AttentionItem* items, size_t count) {
  const size_t width = whole_lanes(a.kv.head_dim);
  AttentionScratch scratch;
  ChunkResult result;
  ChunkResult total;
  const auto first_unit = [&](size_t i) -> const AttentionUnit& {
    return a.units[items[i].first_unit];
  };
  ChunkTiles tiles = chunk_tiles(a.kv, first_unit(0), items[0].first_chunk);
  for (size_t i = 0; i < count; ++i) {
    const AttentionItem& item = items[i];
    const AttentionUnit& unit = first_unit(i);
    const bool whole = unit.partials == nullptr;
    const size_t own = unit.rows * unit.heads;
    const size_t end = item.first_chunk + item.chunks;
    const size_t queries = load_queries(a, item, scratch);
    for (size_t c = item.first_chunk; c < end; ++c) {
      ChunkTiles next;
      if (c + 1 < end) {
        next = chunk_tiles(a.kv, unit, c + 1);
      } else if (i + 1 < count) {
        next = chunk_tiles(a.kv, first_unit(i + 1), items[i + 1].first_chunk);
      }
      const ChunkQueries part = queries_of(unit, c);
      const bool starts = whole && c == unit.first_chunk;
      attend_chunk(a.kv, unit, c, part.first, part.end + queries - own, tiles, next, scratch,
                   starts ? total : result);
      if (!whole) {
        store_partials(a, item, c, result);
      } else if (!starts) {
        merge_chunk(part, width, result, total);
      }
      tiles = next;
    }
    for (size_t j = 0; whole && j < queries; ++j) {
      write_out(total.values + j * width, total.sum[j], a.kv, a.out + query_at(a, unit, j));
    }
  }
}

static void combine(const AttentionArgs& a, const AttentionUnit& unit) {
  const size_t head_dim = a.kv.head_dim;
  const size_t stride = partial_floats(head_dim);
  const size_t queries = unit.rows * unit.heads;
  float max[k_queries_max], sum[k_queries_max], max_in[k_queries_max], sum_in[k_queries_max];
  MergeWeights weights;
  // Values are merged where those of the first chunk stand.
  for (size_t c = unit.first_chunk; c < unit.end_chunk; ++c) {
    const auto [first, fresh, end] = queries_of(unit, c);
    const float* parts = unit.partials + (c - unit.first_chunk) * queries * stride;
    for (size_t j = first; j < end; ++j) {
      (j < fresh ? max_in : max)[j] = parts[j * stride];
      (j < fresh ? sum_in : sum)[j] = parts[j * stride + 1];
    }
    merge_sums(max + first, sum + first, max_in + first, sum_in + first, fresh - first, weights);
    for (size_t j = first; j < fresh; ++j) {
      merge_values(unit.partials + j * stride + 16, parts + j * stride + 16,
                   weights.keep[j - first], weights.add[j - first], whole_lanes(head_dim));
    }
    if (c == unit.first_chunk) continue;
    for (size_t j = fresh; j < end; ++j) {
      __builtin_memcpy(unit.partials + j * stride + 16, parts + j * stride + 16,
                       whole_lanes(head_dim) * sizeof(float));
    }
  }
  for (size_t j = 0; j < queries; ++j) {
    write_out(unit.partials + j * stride + 16, sum[j], a.kv, a.out + query_at(a, unit, j));
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
