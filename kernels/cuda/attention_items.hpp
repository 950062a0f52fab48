#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/device.hpp"

/// How a step's rows are cut into blocks for a device. Pure; no result depends on it.
namespace outrider::kernels::cuda {

/// Floats that chunks may leave for MergeChunks.
inline constexpr size_t k_partial_floats_max = size_t{32} << 20;

KvPool kv_pool(const KvGeometry& geometry, uint32_t layer, std::byte* pool);

/// The items of a call, and the block ids that they look at.
template <class Item>
struct Items {
  std::vector<Item> items;
  std::vector<int32_t> tables;
};

/// In `out`, whose memory is used again.
void append_items(const KvGeometry& geometry, std::span<const Segment> segments,
                  Items<AppendItem>& out);
void attention_items(const KvGeometry& geometry, std::span<const Segment> segments, size_t heads,
                     uint32_t queries_max, Items<AttentionItem>& out);

/// How many of each kind a step's rows and queries may need.
size_t append_items_max(size_t rows, size_t segments);
size_t attention_items_max(size_t queries, size_t segments);

/// What a layer's call takes of its shape: all but the pool, items and floats.
Attention attention_call(const KvGeometry& geometry, std::span<const Segment> segments,
                         size_t heads, size_t shared_bytes_max);
/// Whether TensorAttention takes it, else FloatAttention.
bool attention_on_tensor_cores(const KvGeometry& geometry);
/// Query vectors of an item, a power of two: 4 to 64, in float 4 or 8; no more than the longest
/// segment needs and shared memory has room for.
uint32_t queries_of_item(const KvGeometry& geometry, std::span<const Segment> segments,
                         size_t heads, size_t shared_bytes_max);
/// Stages of tiles that fit beside so many queries; `tiles` is 0 if not even one does.
AttentionStages attention_stages(const KvGeometry& geometry, uint32_t queries_max,
                                 size_t shared_bytes_max);

/// Blocks for items, and whether chunks are spread over them.
struct AttentionPlan {
  Launch launch;
  size_t partial_floats = 0;  ///< 0: a block takes all chunks of its item
  uint32_t chunks_max = 1;    ///< of an item, in `partial`
};
/// The most that a plan's `partial_floats` may be, and the bytes that a step's items take.
size_t partial_floats_max(const StepSizes& sizes, uint32_t multiprocessors);
size_t step_items_bytes_max(const StepSizes& sizes);
/// The most chunks that an item goes over.
uint32_t chunks_of(const AttentionCall& call, std::span<const AttentionItem> items);
/// At least so many as there are.
struct AttentionShape {
  uint32_t items = 0;
  uint32_t chunks = 0;  ///< of an item
};
AttentionPlan plan_attention(const Attention& call, AttentionShape shape, uint32_t multiprocessors);

}  // namespace outrider::kernels::cuda
