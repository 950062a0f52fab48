#include "kernels/cpu/attention_plan.hpp"

#include <algorithm>

namespace outrider::kernels {
namespace {

/// More runs than threads, so that a thread that is not scheduled costs little.
constexpr size_t k_runs_per_thread = 4;
/// Reading a chunk costs as much as so many queries on it.
constexpr size_t k_reading_queries = 6;
/// A unit is left whole if that makes its run longer by less than this part.
constexpr size_t k_slack_parts = 8;

size_t ceil_div(size_t a, size_t b) {
  return (a + b - 1) / b;
}

size_t chunk_cost(const AttentionItem& unit) {
  return unit.rows * unit.heads + k_reading_queries;
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
  runs_.clear();
  split_units_.clear();
  for (const Segment& segment : segments) add_units(geometry, segment, heads);
  cut_runs(threads == 1 ? 1 : threads * k_runs_per_thread);
  place_partials(partial_floats(geometry.head_dim));
}

void AttentionPlan::cut_runs(size_t runs) {
  size_t total = 0;
  for (const AttentionItem& unit : units_) total += unit.chunks * chunk_cost(unit);
  size_t done = 0;
  size_t first_item = 0;
  for (const AttentionItem& unit : units_) {
    const size_t cost = chunk_cost(unit);
    for (size_t chunk = 0; chunk < unit.chunks;) {
      const size_t boundary = std::min(total, ceil_div(total * (runs_.size() + 1), runs));
      size_t taken = unit.chunks - chunk;
      if (done + taken * cost > boundary + total / runs / k_slack_parts) {
        const size_t room = boundary - std::min(done, boundary);
        taken = std::clamp<size_t>((room + cost / 2) / cost, 1, taken);
      }
      AttentionItem item = unit;
      item.first_chunk = chunk;
      item.chunks = taken;
      items_.push_back(item);
      chunk += taken;
      done += taken * cost;
      if (done + cost / 2 >= boundary) {
        runs_.push_back({first_item, items_.size()});
        first_item = items_.size();
      }
    }
  }
  if (first_item < items_.size()) runs_.push_back({first_item, items_.size()});
}

void AttentionPlan::place_partials(size_t floats) {
  const auto is_split = [](const AttentionItem& item) {
    return item.first_chunk > 0 ||
           item.chunks * k_chunk_positions < item.first_position + item.rows;
  };
  size_t total = 0;
  for (const AttentionItem& item : items_) {
    if (is_split(item)) total += item.chunks * item.rows * item.heads * floats;
  }
  if (partials_.size() < total) partials_.resize(total);
  float* next = partials_.data();
  for (AttentionItem& item : items_) {
    if (!is_split(item)) continue;
    item.partials = next;
    next += item.chunks * item.rows * item.heads * floats;
    if (item.first_chunk == 0) {
      split_units_.push_back(item);
    } else {
      split_units_.back().chunks += item.chunks;
    }
  }
}

}  // namespace outrider::kernels
