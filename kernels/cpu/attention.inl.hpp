#pragma once

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/tile.inl.hpp"
#include "kernels/cpu/vector_math.inl.hpp"

namespace outrider::kernels::OUTRIDER_ISA {

constexpr float k_lowest = -__builtin_inff();
/// Room for the tiles of 16 positions whose keys or values are converted to float at a time.
constexpr size_t k_strip_floats = 4 * 16 * 256;
static_assert(k_strip_floats >= 16 * k_head_dim_max);

/// Up to four tiles.
OUTRIDER_INLINE size_t strip_tiles_max(size_t head_dim) {
  return min_of(4, k_strip_floats / (16 * whole_lanes(head_dim)));
}

/// Softmax of one chunk, for each query: scores become weights relative to the chunk's maximum.
struct ChunkResult {
  float max[k_queries_max];
  float sum[k_queries_max];
  alignas(64) float values[k_query_floats_max];  ///< [query][whole_lanes(head_dim)]
};

OUTRIDER_INLINE const std::byte* kv_tile(const KvLayer& kv, const int32_t* block_table,
                                         size_t kv_head, size_t tile, bool value) {
  const size_t block = static_cast<size_t>(block_table[tile / kv.block_tiles]);
  const bool half = value ? kv.v_half : kv.k_half;
  const size_t tile_bytes = k_tile_positions * kv.head_dim * (half ? 2 : 4);
  return kv.pool + block * kv.block_bytes + kv_head * kv.head_bytes + (value ? kv.v_at : 0) +
         tile % kv.block_tiles * tile_bytes;
}

OUTRIDER_INLINE Vec load_stored(const std::byte* at, bool half) {
  return half ? load_half(at) : load(reinterpret_cast<const float*>(at));
}

/// K tile [head_dim][16] as floats.
static void decode_keys(const std::byte* tile, bool half, size_t head_dim, float* strip) {
  const size_t step = half ? 32 : 64;
  for (size_t d = 0; d < head_dim; ++d) store(strip + 16 * d, load_stored(tile + d * step, half));
}

/// V tile [16][head_dim] as floats [panel of 16 d][position][16], panels `panel_stride` apart;
/// lanes past head_dim are zero.
static void decode_values(const std::byte* tile, bool half, size_t head_dim, size_t panel_stride,
                          float* strip) {
  const size_t element = half ? 2 : 4;
  for (size_t d = 0; d < head_dim; d += 16) {
    const size_t width = min_of(16, head_dim - d);
    float* out = strip + d / 16 * panel_stride;
    for (size_t t = 0; t < 16; ++t) {
      const std::byte* at = tile + (t * head_dim + d) * element;
      if (width == 16) {
        store(out + 16 * t, load_stored(at, half));
        continue;
      }
      alignas(64) std::byte part[64] = {};
      __builtin_memcpy(part, at, width * element);
      store(out + 16 * t, load_stored(part, half));
    }
  }
}

/// One query's scores, in powers of two, over `tiles` tiles become 2^(score - max); positions from
/// `valid` on get 0. The sum runs over 16 lanes in ascending position, then over the fixed tree.
OUTRIDER_INLINE void softmax_chunk(float* scores, size_t valid, size_t tiles, float* max_out,
                                   float* sum_out) {
  const size_t whole = valid / 16;
  const size_t rest = valid % 16;
  Vec top = broadcast(k_lowest);
  for (size_t t = 0; t < whole; ++t) top = max(top, load(scores + 16 * t));
  if (rest != 0) {
    top = max(top, select_first(rest, load(scores + 16 * whole), broadcast(k_lowest)));
  }
  const float highest = reduce_max(top);
  Vec sum = zero();
  for (size_t t = 0; t < whole; ++t) {
    const Vec p = exp2_of_negative(load(scores + 16 * t) - broadcast(highest));
    store(scores + 16 * t, p);
    sum = sum + p;
  }
  if (rest != 0) {
    const Vec p = exp2_of_negative(load(scores + 16 * whole) - broadcast(highest));
    const Vec masked = select_first(rest, p, zero());
    store(scores + 16 * whole, masked);
    sum = sum + masked;
  }
  for (size_t t = (valid + 15) / 16; t < tiles; ++t) store(scores + 16 * t, zero());
  *max_out = highest;
  *sum_out = reduce_add(sum);
}

/// Work space of one item. Queries are [rows, heads] of the item.
struct AttentionScratch {
  alignas(64) float q[k_query_floats_max];
  alignas(64) float scores[k_queries_max * k_chunk_positions];
  alignas(64) float strip[k_strip_floats];
};

/// Results of one chunk for the item's queries from `first` on; earlier rows end before it.
static void attend_chunk(const AttentionArgs& a, const AttentionItem& item, size_t chunk,
                         size_t first, AttentionScratch& s, ChunkResult& out) {
  const size_t head_dim = a.kv.head_dim;
  const size_t width = whole_lanes(head_dim);
  const size_t queries = item.rows * item.heads - first;
  const size_t base = chunk * k_chunk_positions;
  const size_t end = item.first_position + item.rows;
  const size_t tiles = (min_of(k_chunk_positions, end - base) + 15) / 16;
  const size_t first_tile = base / 16;
  const size_t strip_tiles = strip_tiles_max(head_dim);
  for (size_t t = 0; t < tiles; t += strip_tiles) {
    const size_t count = min_of(strip_tiles, tiles - t);
    for (size_t i = 0; i < count; ++i) {
      decode_keys(kv_tile(a.kv, item.block_table, item.kv_head, first_tile + t + i, false),
                  a.kv.k_half, head_dim, s.strip + i * 16 * head_dim);
    }
    run_tiles({.strip = s.strip,
               .panel_stride = 16 * head_dim,
               .x = s.q + first * head_dim,
               .x_stride = head_dim,
               .k = head_dim,
               .acc = s.scores + first * k_chunk_positions + 16 * t,
               .acc_stride = k_chunk_positions,
               .from_zero = true},
              queries, count);
  }
  for (size_t j = first; j < first + queries; ++j) {
    const size_t own_end = item.first_position + j / item.heads + 1;
    softmax_chunk(s.scores + j * k_chunk_positions, min_of(k_chunk_positions, own_end - base),
                  tiles, &out.max[j], &out.sum[j]);
  }
  for (size_t t = 0; t < tiles; t += strip_tiles) {
    const size_t count = min_of(strip_tiles, tiles - t);
    for (size_t i = 0; i < count; ++i) {
      decode_values(kv_tile(a.kv, item.block_table, item.kv_head, first_tile + t + i, true),
                    a.kv.v_half, head_dim, strip_tiles * 256, s.strip + i * 256);
    }
    run_tiles({.strip = s.strip,
               .panel_stride = strip_tiles * 256,
               .x = s.scores + first * k_chunk_positions + 16 * t,
               .x_stride = k_chunk_positions,
               .k = 16 * count,
               .acc = out.values + first * width,
               .acc_stride = width,
               .from_zero = t == 0},
              queries, width / 16);
  }
}

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
OUTRIDER_INLINE void write_out(const float* values, float sum, size_t head_dim, float* out) {
  const Vec inverse = broadcast(1.0f / sum);
  for (size_t d = 0; d < head_dim; d += 16) {
    store_first(out + d, load(values + d) * inverse + zero(), min_of(16, head_dim - d));
  }
}

OUTRIDER_INLINE size_t query_at(const AttentionArgs& a, const AttentionItem& item, size_t j) {
  const size_t row = item.first_row + j / item.heads;
  return (row * a.heads + item.first_head + j % item.heads) * a.kv.head_dim;
}

static void attend(const AttentionArgs& a, const AttentionItem& item) {
  const size_t head_dim = a.kv.head_dim;
  const size_t width = whole_lanes(head_dim);
  const size_t queries = item.rows * item.heads;
  AttentionScratch scratch;
  ChunkResult chunk;
  ChunkResult total;
  MergeWeights weights;
  // Scores come out as powers of two.
  const Vec scale = broadcast(a.scale * 0x1.715476p+0f);
  for (size_t j = 0; j < queries; ++j) {
    const float* q = a.q + query_at(a, item, j);
    for (size_t d = 0; d < head_dim; d += 16) {
      const size_t n = min_of(16, head_dim - d);
      store_first(scratch.q + j * head_dim + d, load_first(q + d, n) * scale, n);
    }
  }
  for (size_t c = item.first_chunk; c < item.first_chunk + item.chunks; ++c) {
    const size_t base = c * k_chunk_positions;
    const size_t first = base > item.first_position ? (base - item.first_position) * item.heads : 0;
    const bool whole = item.partials == nullptr;
    attend_chunk(a, item, c, first, scratch, whole && c == 0 ? total : chunk);
    if (whole && c > 0) {
      merge_sums(total.max + first, total.sum + first, chunk.max + first, chunk.sum + first,
                 queries - first, weights);
      for (size_t j = first; j < queries; ++j) {
        merge_values(total.values + j * width, chunk.values + j * width, weights.keep[j - first],
                     weights.add[j - first], width);
      }
    }
    if (whole) continue;
    for (size_t j = first; j < queries; ++j) {
      float* partial =
          item.partials + ((c - item.first_chunk) * queries + j) * partial_floats(head_dim);
      partial[0] = chunk.max[j];
      partial[1] = chunk.sum[j];
      __builtin_memcpy(partial + 16, chunk.values + j * width, width * sizeof(float));
    }
  }
  for (size_t j = 0; item.partials == nullptr && j < queries; ++j) {
    write_out(total.values + j * width, total.sum[j], head_dim, a.out + query_at(a, item, j));
  }
}

static void combine(const AttentionArgs& a, const AttentionItem& item) {
  const size_t head_dim = a.kv.head_dim;
  const size_t stride = partial_floats(head_dim);
  const size_t queries = item.rows * item.heads;
  float max[k_queries_max], sum[k_queries_max], max_in[k_queries_max], sum_in[k_queries_max];
  MergeWeights weights;
  for (size_t c = 0; c < item.chunks; ++c) {
    const size_t base = c * k_chunk_positions;
    const size_t first = base > item.first_position ? (base - item.first_position) * item.heads : 0;
    const float* parts = item.partials + c * queries * stride;
    for (size_t j = first; j < queries; ++j) {
      (c == 0 ? max : max_in)[j] = parts[j * stride];
      (c == 0 ? sum : sum_in)[j] = parts[j * stride + 1];
    }
    if (c == 0) continue;
    merge_sums(max + first, sum + first, max_in + first, sum_in + first, queries - first, weights);
    for (size_t j = first; j < queries; ++j) {
      merge_values(item.partials + j * stride + 16, parts + j * stride + 16,
                   weights.keep[j - first], weights.add[j - first], whole_lanes(head_dim));
    }
  }
  for (size_t j = 0; j < queries; ++j) {
    write_out(item.partials + j * stride + 16, sum[j], head_dim, a.out + query_at(a, item, j));
  }
}

}  // namespace outrider::kernels::OUTRIDER_ISA
