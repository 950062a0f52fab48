#include "kernels/cpu/attention_plan.hpp"

#include <algorithm>

namespace outrider::kernels {
namespace {

/// More pieces than threads, so that an uneven end costs little.
constexpr size_t k_pieces_per_thread = 8;

size_t ceil_div(size_t a, size_t b) {
  return (a + b - 1) / b;
}

}  // namespace

void AttentionPlan::add_units(const KvGeometry& geometry, const Segment& segment, size_t heads) {
  const size_t group = heads / geometry.kv_heads;
  const size_t queries = queries_max(geometry.head_dim);
  const size_t heads_per_unit = std::min(group, queries);
  const size_t rows_per_unit = queries / heads_per_unit;
  for (size_t row = 0; row < segment.rows; row += rows_per_unit) {
    const size_t rows = std::min(rows_per_unit, segment.rows - row);
    const size_t end = segment.first_position + row + rows;
    for (size_t kv_head = 0; kv_head < geometry.kv_heads; ++kv_head) {
      for (size_t head = 0; head < group; head += heads_per_unit) {
        units_.push_back({.block_table = segment.block_table,
                          .first_row = segment.first_row + row,
                          .rows = rows,
                          .first_position = segment.first_position + row,
                          .kv_head = kv_head,
                          .first_head = kv_head * group + head,
                          .heads = std::min(heads_per_unit, group - head),
                          .first_chunk = 0,
                          .chunks = ceil_div(end, k_chunk_positions),
                          .partials = nullptr});
      }
    }
  }
}

void AttentionPlan::build(const KvGeometry& geometry, std::span<const Segment> segments,
                          size_t heads, uint32_t threads) {
  units_.clear();
  items_.clear();
  split_units_.clear();
  for (const Segment& segment : segments) add_units(geometry, segment, heads);

  size_t chunks = 0;
  for (const AttentionItem& unit : units_) chunks += unit.chunks;
  const size_t chunks_per_item =
      threads == 1 ? chunks : std::max<size_t>(1, chunks / (threads * k_pieces_per_thread));
  const size_t floats = partial_floats(geometry.head_dim);
  size_t partial_total = 0;
  for (const AttentionItem& unit : units_) {
    if (unit.chunks > chunks_per_item)
      partial_total += unit.chunks * unit.rows * unit.heads * floats;
  }
  if (partials_.size() < partial_total) partials_.resize(partial_total);

  float* partials = partials_.data();
  for (const AttentionItem& unit : units_) {
    if (unit.chunks <= chunks_per_item) {
      items_.push_back(unit);
      continue;
    }
    const size_t chunk_floats = unit.rows * unit.heads * floats;
    AttentionItem whole = unit;
    whole.partials = partials;
    split_units_.push_back(whole);
    for (size_t chunk = 0; chunk < unit.chunks; chunk += chunks_per_item) {
      AttentionItem item = unit;
      item.first_chunk = chunk;
      item.chunks = std::min(chunks_per_item, unit.chunks - chunk);
      item.partials = partials + chunk * chunk_floats;
      items_.push_back(item);
    }
    partials += unit.chunks * chunk_floats;
  }
}

}  // namespace outrider::kernels
