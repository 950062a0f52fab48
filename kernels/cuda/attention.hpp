#pragma once

#include "kernels/cuda/kv_tiles.hpp"
#include "kernels/cuda/math.hpp"

/// Attention over the paged pool: online softmax by chunks (Milakov and Gimelshein 2018,
/// arXiv:1805.02867; split over blocks as flash decoding). Kinds whose numbers fit halves go over
/// tensor cores (tensor_attention.hpp), others in float (float_attention.hpp).
///
/// The order of an output, whatever the rows, units and blocks of the call: chunks of 128 absolute
/// positions, each from zero: scores as the kernel says; the exact maximum of the numbers among
/// them; weight = 2^(score - maximum); sum and values as the kernel says. Chunks merge in ascending
/// order: sum = fma(sum, 2^(m - M), sum_c * 2^(m_c - M)), values likewise. Positions behind the row
/// and before its window take no part, whatever stands there.
namespace outrider::kernels::cuda {

inline constexpr uint32_t k_chunk_tiles = 8;
inline constexpr uint32_t k_chunk = 16 * k_chunk_tiles;

/// Query vectors of one sequence that share a block: query i is head i % group of row i / group.
struct AttentionItem {
  uint32_t table_at = 0;        ///< of the sequence, in the tables
  uint32_t first_row = 0;       ///< the sequence's first, of the batch
  uint32_t first_position = 0;  ///< of that row
  uint32_t first_query = 0;
  uint32_t queries = 0;  ///< 0: there is nothing to do
};

/// What attention and the merging of its chunks share.
struct AttentionCall {
  const AttentionItem* items = nullptr;
  const int32_t* tables = nullptr;
  const float* q = nullptr;  ///< [rows, heads, head_dim]
  float* out = nullptr;      ///< likewise
  uint32_t head_dim = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t window = 0;
  float scale_log2 = 0;  ///< scale * log2 e
  /// Null: a block goes over all chunks. Else [items][kv_heads][chunks_max][queries][2 + head_dim]:
  /// maximum, sum and values of each chunk.
  float* partial = nullptr;
  uint32_t chunks_max = 0;  ///< at least those of any item
  uint32_t parts = 1;       ///< blocks that an item's chunks are spread over

  OUTRIDER_KERNEL uint32_t group() const { return heads / kv_heads; }
  OUTRIDER_KERNEL uint32_t position(const AttentionItem& item, uint32_t i) const {
    return item.first_position + (item.first_query + i) / group();
  }
  /// The first position that a row sees.
  OUTRIDER_KERNEL uint32_t begin(uint32_t of_position) const {
    return window == 0 || of_position < window ? 0 : of_position + 1 - window;
  }
  OUTRIDER_KERNEL bool sees_chunk(uint32_t of_position, uint32_t chunk) const {
    return of_position >= chunk * k_chunk && begin(of_position) < (chunk + 1) * k_chunk;
  }
  OUTRIDER_KERNEL uint32_t first_chunk(const AttentionItem& item) const {
    return begin(position(item, 0)) / k_chunk;
  }
  OUTRIDER_KERNEL uint32_t end_chunk(const AttentionItem& item) const {
    return position(item, item.queries - 1) / k_chunk + 1;
  }
  /// Chunks are spread evenly: those of a part end where the next one's begin.
  OUTRIDER_KERNEL uint32_t first_chunk_of_part(const AttentionItem& item, uint32_t part) const {
    const uint32_t first = first_chunk(item);
    return first + (end_chunk(item) - first) * part / parts;
  }
  /// Where a query's vector begins, in q and out.
  OUTRIDER_KERNEL size_t vector_at(const AttentionItem& item, uint32_t kv_head, uint32_t i) const {
    const uint32_t query = item.first_query + i;
    const size_t row = item.first_row + query / group();
    return (row * heads + kv_head * group() + query % group()) * head_dim;
  }
  OUTRIDER_KERNEL float* partial_of(uint32_t item, uint32_t kv_head, uint32_t chunk, uint32_t i,
                                    uint32_t queries_max) const {
    const size_t at = (size_t{item} * kv_heads + kv_head) * chunks_max + chunk;
    return partial + (at * queries_max + i) * (2 + head_dim);
  }
};

/// Maximum and sum of softmax's weights so far.
struct SoftmaxState {
  float highest = 0;
  float sum = 0;
};

/// By what to multiply what was before and what a chunk gives.
struct MergeFactors {
  float before, chunk, highest;
};
OUTRIDER_KERNEL MergeFactors merge_factors(float before, float chunk) {
  const float highest = chunk > before ? chunk : before;
  return {exp2_of_negative(before - highest), exp2_of_negative(chunk - highest), highest};
}
OUTRIDER_KERNEL float merged(float before, float chunk, const MergeFactors& factors) {
  return fused(before, factors.before, chunk * factors.chunk);
}

/// Tiles of keys or values that lie in shared memory at a time: two such stages take turns, of
/// which one is copied while the other is used, or one where only one fits.
struct AttentionStages {
  uint32_t count = 2;
  uint32_t tiles = k_chunk_tiles;
  uint32_t tile_pitch[2] = {};  ///< bytes, keys and values; 32 more than a tile: other banks
  uint32_t bytes = 0;
};

struct Attention : AttentionCall {
  KvPool pool;
  AttentionStages stages;
  bool on_tensor_cores = false;
  uint32_t queries_max = 8;  ///< of an item: a power of two, 4 or 8 in float, else 4 to 64
};

/// Joins the chunks of each query, in ascending order. Blocks: x an item, y a kv head, z a query.
struct MergeChunks : AttentionCall {
  static constexpr uint32_t k_threads = 128;

  uint32_t queries_max = 8;

  static constexpr uint32_t k_ahead = 8;
  struct Partial {
    SoftmaxState state;
    float value;
  };

  template <class Block>
  OUTRIDER_KERNEL void operator()(Block& block) const {
    const AttentionItem& item = items[block.x()];
    const uint32_t i = block.z();
    if (i >= item.queries) return;
    const uint32_t first = first_chunk(item), end = end_chunk(item);
    float* const to = out + vector_at(item, block.y(), i);
    block.threads([&](uint32_t t) {
      for (uint32_t d = t; d < head_dim; d += k_threads) {
        SoftmaxState state = {float_of(0xFF800000u), 0};
        float value = 0;
        for (uint32_t chunk = first; chunk < end; chunk += k_ahead) {
          Partial ahead[k_ahead];  // read together: the memory is far
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < k_ahead; ++c) {
            const float* const from =
                partial_of(block.x(), block.y(), least(chunk + c, end - 1) - first, i, queries_max);
            ahead[c] = {{from[0], from[1]}, from[2 + d]};
          }
          OUTRIDER_UNROLL
          for (uint32_t c = 0; c < k_ahead; ++c) {
            if (chunk + c >= end || !sees_chunk(position(item, i), chunk + c)) continue;
            const MergeFactors factors = merge_factors(state.highest, ahead[c].state.highest);
            value = merged(value, ahead[c].value, factors);
            state = {factors.highest, merged(state.sum, ahead[c].state.sum, factors)};
          }
        }
        to[d] = value / state.sum;
      }
    });
  }
};

}  // namespace outrider::kernels::cuda
