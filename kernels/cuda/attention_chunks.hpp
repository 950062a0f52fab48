#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/kv_fragments.hpp"
#include "kernels/cuda/weight_units.hpp"

namespace outrider::kernels::cuda {

/// How a block of TensorAttention gets its chunks and queries into shared memory.
struct ChunkedAttention : Attention {
  static constexpr uint32_t k_threads = 128;
  static constexpr uint32_t k_head_dim_max = 256;

  explicit ChunkedAttention(const Attention& call) : Attention(call) {}

  struct Work {
    const AttentionItem* item;
    uint32_t item_at, kv_head;
  };
  struct Chunk {
    uint32_t number;
    uint32_t begin, end;  ///< its tiles that any query sees, of the sequence
    bool whole;           ///< all queries see all of it

    /// Behind the start of the chunk's memory; of a tile that is not there another's.
    OUTRIDER_KERNEL uint32_t place(uint32_t of_chunk) const {
      const uint32_t first = number * k_chunk_tiles;
      return least(greatest(first + of_chunk, begin), end - 1) - first;
    }
    OUTRIDER_KERNEL bool has(uint32_t of_chunk) const {
      const uint32_t tile = number * k_chunk_tiles + of_chunk;
      return tile >= begin && tile < end;
    }
  };
  /// Those of the pool that hold the chunk's tiles.
  struct BlockIds {
    uint32_t of[k_chunk_tiles];
  };

  OUTRIDER_KERNEL uint32_t units() const { return (head_dim + 15) / 16; }

  OUTRIDER_KERNEL Chunk chunk_of(const Work& work, uint32_t number) const {
    const uint32_t front = position(*work.item, 0);
    const uint32_t back = position(*work.item, work.item->queries - 1);
    Chunk chunk;
    chunk.number = number;
    chunk.begin = greatest(number * k_chunk_tiles, begin(front) / 16);
    chunk.end = least((number + 1) * k_chunk_tiles, back / 16 + 1);
    chunk.whole = (number + 1) * k_chunk <= front + 1 && begin(back) <= number * k_chunk;
    return chunk;
  }

  /// Together: the memory is far.
  OUTRIDER_KERNEL BlockIds ids_of(const Work& work, const Chunk& chunk) const {
    BlockIds ids;
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_chunk_tiles; ++i) {
      const uint32_t tile = chunk.number * k_chunk_tiles + chunk.place(i);
      ids.of[i] = static_cast<uint32_t>(tables[work.item->table_at + tile / pool.block_tiles]);
    }
    return ids;
  }

  /// Of keys (0) or values (1), to the stage of that number.
  template <class Shared, class Copies>
  OUTRIDER_KERNEL void start_copies(const Work& work, const Chunk& chunk, const BlockIds& ids,
                                    uint32_t stage, const Shared& to, Copies& copies) const {
    const uint32_t bytes = stages.tile_pitch[stage];
    const std::byte* const head =
        pool.layer + work.kv_head * pool.head_bytes + (stage == 0 ? 0 : pool.values_at);
    OUTRIDER_UNROLL
    for (uint32_t i = 0; i < k_chunk_tiles; ++i) {
      if (!chunk.has(i)) continue;
      const uint32_t in_block = (chunk.number * k_chunk_tiles + i) % pool.block_tiles;
      copies.start(stage, to, i * bytes,
                   head + size_t{ids.of[i]} * pool.block_bytes + size_t{in_block} * bytes, bytes);
    }
    copies.close(stage);
  }

  /// So many query vectors, zeros where there are less, become `halves`, [queries / 16][units][32
  /// lanes][8], and by what to undo their powers of two. A warp takes four rows at a time.
  template <class Block, class Halves, class Floats>
  OUTRIDER_KERNEL void load_queries(Block& block, const Work& work, uint32_t queries,
                                    const Halves& halves, const Floats& inverse) const {
    struct Rows {
      float x[4][k_head_dim_max / 32];
      uint32_t largest[4];
    };
    auto rows = block.template local<Rows>();
    auto largest = block.template local<uint32_t>();
    const bool round = !pool.of[0].has_scales;
    for (uint32_t first = 0; first < queries; first += 16) {
      block.threads([&](uint32_t t) {
        OUTRIDER_UNROLL
        for (uint32_t i = 0; i < 4; ++i) {
          const uint32_t row = first + 4 * i + t / 32;
          const bool there = row < work.item->queries;
          const float* const from = q + (there ? vector_at(*work.item, work.kv_head, row) : 0);
          rows[t].largest[i] = 0;
          OUTRIDER_UNROLL
          for (uint32_t j = 0; j < k_head_dim_max / 32; ++j) {
            const uint32_t d = t % 32 + 32 * j;
            const float x = there && d < head_dim ? from[d] * scale_log2 : 0.0f;
            rows[t].x[i][j] = x;
            rows[t].largest[i] = greatest(rows[t].largest[i], bits_of(magnitude(x)));
          }
        }
      });
      OUTRIDER_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        block.threads([&](uint32_t t) { largest[t] = rows[t].largest[i]; });
        block.warp_max(largest);
        block.threads([&](uint32_t t) {
          const uint32_t row = first + 4 * i + t / 32;
          const int32_t exponent = half_exponent(largest[t]);
          const float factor = power_of_two(exponent);
          if (t % 32 == 0) inverse.store(row, power_of_two(-exponent));
          OUTRIDER_UNROLL
          for (uint32_t j = 0; j < k_head_dim_max / 32; ++j) {
            const uint32_t d = t % 32 + 32 * j, k = d % 16;
            if (d >= units() * 16) continue;
            const uint32_t slot = slot_of_k(round, k);
            const uint32_t lane = row % 8 * 4 + k / 4;
            const uint32_t in_lane = (slot / 2 * 2 + row % 16 / 8) * 2 + slot % 2;
            halves.store(((row / 16 * units() + d / 16) * 32 + lane) * 8 + in_lane,
                         float_as_half(rows[t].x[i][j] * factor));
          }
        });
      }
    }
    block.barrier();
  }
};

}  // namespace outrider::kernels::cuda
