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

/// Chunks that lie before all of its rows.
size_t chunks_before(const Segment& segment) {
  return segment.first_position / k_chunk_positions;
}

/// The blocks of chunks [0, chunks_before).
std::span<const int32_t> blocks_before(const Segment& segment, size_t block_tokens) {
  return {segment.block_table, ceil_div(chunks_before(segment) * k_chunk_positions, block_tokens)};
}

}  // namespace

void AttentionPlan::build(const KvGeometry& geometry, std::span<const Segment> segments,
                          size_t heads, uint32_t threads) {
  const size_t queries = queries_max(geometry.head_dim);
  shape_ = {.kv_heads = geometry.kv_heads,
            .group = heads / geometry.kv_heads,
            .heads_per_unit = std::min(heads / geometry.kv_heads, queries),
            .block_tokens = geometry.block_tokens,
            .window = geometry.window == 0 ? k_no_window : geometry.window};
  shape_.rows_per_unit = queries / shape_.heads_per_unit;
  small_.clear();
  units_.clear();
  works_.clear();
  for (const Segment& segment : segments) {
    if (segment.rows == 0 || segment.rows > shape_.rows_per_unit) continue;
    const size_t first = first_chunk(segment, 0);
    small_.push_back({segment, {first, first}});
  }
  const auto is_long = [](const Small& s) { return chunks_before(s.segment) > 0; };
  if (std::count_if(small_.begin(), small_.end(), is_long) > 1) {
    std::sort(small_.begin(), small_.end(),
              [this](const Small& a, const Small& b) { return before(a, b); });
    share(0, small_.size(), 0);
  }
  add_small_units();
  for (const Segment& segment : segments) {
    if (segment.rows > shape_.rows_per_unit) add_large(segment);
  }
  cut_runs(threads == 1 ? 1 : threads * k_runs_per_thread);
  place_partials(partial_floats(geometry.head_dim));
}

/// The first chunk that the row attends to.
size_t AttentionPlan::first_chunk(const Segment& segment, size_t row) const {
  return window_start(shape_.window, segment.first_position + row) / k_chunk_positions;
}

/// The first chunk whose whole each row attends to, if it ends before them.
size_t AttentionPlan::first_whole_chunk(const Segment& segment) const {
  const size_t last = size_t{segment.first_position} + segment.rows - 1;
  return ceil_div(window_start(shape_.window, last), k_chunk_positions);
}

/// Unit `index` of the shape, of the segment's rows from `row` on.
AttentionUnit AttentionPlan::unit(const Segment& segment, size_t row, size_t index) const {
  const size_t kv_head = index / shape_.units_per_kv_head();
  const size_t head = index % shape_.units_per_kv_head() * shape_.heads_per_unit;
  const size_t rows = std::min(shape_.rows_per_unit, segment.rows - row);
  const size_t first_position = segment.first_position + row;
  return {.block_table = segment.block_table,
          .first_row = segment.first_row + row,
          .rows = rows,
          .first_position = first_position,
          .kv_head = kv_head,
          .first_head = kv_head * shape_.group + head,
          .heads = std::min(shape_.heads_per_unit, shape_.group - head),
          .window = shape_.window,
          .first_chunk = first_chunk(segment, row),
          .end_chunk = ceil_div(first_position + rows, k_chunk_positions)};
}

bool AttentionPlan::same_chunk(const Small& a, const Small& b, size_t chunk) const {
  if (chunk >= std::min(chunks_before(a.segment), chunks_before(b.segment))) return false;
  const size_t begin = chunk * k_chunk_positions / shape_.block_tokens;
  const size_t end = ceil_div((chunk + 1) * k_chunk_positions, shape_.block_tokens);
  return std::equal(a.segment.block_table + begin, a.segment.block_table + end,
                    b.segment.block_table + begin);
}

/// By it, those that begin alike come to stand side by side.
bool AttentionPlan::before(const Small& a, const Small& b) const {
  const auto left = blocks_before(a.segment, shape_.block_tokens);
  const auto right = blocks_before(b.segment, shape_.block_tokens);
  if (!std::equal(left.begin(), left.end(), right.begin(), right.end())) {
    return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end());
  }
  return a.segment.first_row < b.segment.first_row;
}

/// Those whose windows begin so late that all would lose more than half of what the others could
/// share of [chunk, end_chunk) come to stand behind these; where they begin.
size_t AttentionPlan::split_late(size_t begin, size_t end, size_t chunk, size_t end_chunk) {
  size_t earliest = end_chunk;
  for (size_t i = begin; i < end; ++i) {
    earliest = std::min(earliest, std::max(chunk, first_whole_chunk(small_[i].segment)));
  }
  const size_t latest = earliest + (end_chunk - earliest) / 2;
  const auto is_late = [&](const Small& s) { return first_whole_chunk(s.segment) > latest; };
  const auto first = small_.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto last = small_.begin() + static_cast<std::ptrdiff_t>(end);
  const size_t late = static_cast<size_t>(std::count_if(first, last, is_late));
  if (late == 0 || late == end - begin) return end;
  std::sort(first, last, [&](const Small& a, const Small& b) {
    return is_late(a) != is_late(b) ? is_late(b) : before(a, b);
  });
  return end - late;
}

/// small_[begin, end) agree on all chunks before `chunk`.
void AttentionPlan::share(size_t begin, size_t end, size_t chunk) {
  while (begin < end) {
    const auto all_share = [&](size_t last, size_t c) {
      return same_chunk(small_[begin], small_[last], c);
    };
    size_t same = begin + 1;
    while (same < end && all_share(same, chunk)) ++same;
    if (same - begin > 1) {
      size_t to = chunk + 1;
      // Sorted: what the first and the last have in common, all have.
      while (all_share(same - 1, to)) ++to;
      const size_t late = split_late(begin, same, chunk, to);
      if (late == same) {
        add_shared(begin, same, chunk, to);
        share(begin, same, to);
      } else {
        share(begin, late, chunk);
        share(late, same, chunk);
      }
    }
    begin = same;
  }
}

void AttentionPlan::add_shared(size_t begin, size_t end, size_t first_chunk, size_t end_chunk) {
  for (size_t i = begin; i < end; ++i) {
    first_chunk = std::max(first_chunk, first_whole_chunk(small_[i].segment));
  }
  if (first_chunk >= end_chunk) return;
  for (size_t i = begin; i < end; ++i) {
    Range& shared = small_[i].shared;
    if (shared.begin == shared.end) shared.begin = first_chunk;
    shared.end = end_chunk;
  }
  const size_t rows_max = shape_.rows_per_unit;
  while (begin < end) {
    size_t rows = 0;
    size_t next = begin;
    while (next < end && rows + small_[next].segment.rows <= rows_max) {
      rows += small_[next++].segment.rows;
    }
    for (size_t index = 0; index < shape_.units(); ++index) {
      works_.push_back({.first_unit = index * small_.size() + begin,
                        .units = next - begin,
                        .first_chunk = first_chunk,
                        .chunks = end_chunk - first_chunk});
    }
    begin = next;
  }
}

/// Their units, and the chunks that each has for itself.
void AttentionPlan::add_small_units() {
  for (size_t index = 0; index < shape_.units(); ++index) {
    for (const Small& small : small_) units_.push_back(unit(small.segment, 0, index));
  }
  for (size_t i = 0; i < small_.size(); ++i) {
    for (size_t index = 0; index < shape_.units(); ++index) {
      const size_t at = index * small_.size() + i;
      const auto [shared_begin, shared_end] = small_[i].shared;
      if (units_[at].first_chunk < shared_begin) {
        works_.push_back({.first_unit = at,
                          .first_chunk = units_[at].first_chunk,
                          .chunks = shared_begin - units_[at].first_chunk});
      }
      works_.push_back({.first_unit = at,
                        .first_chunk = shared_end,
                        .chunks = units_[at].end_chunk - shared_end});
    }
  }
}

void AttentionPlan::add_large(const Segment& segment) {
  for (size_t row = 0; row < segment.rows; row += shape_.rows_per_unit) {
    for (size_t index = 0; index < shape_.units(); ++index) {
      units_.push_back(unit(segment, row, index));
      const AttentionUnit& unit = units_.back();
      works_.push_back({.first_unit = units_.size() - 1,
                        .first_chunk = unit.first_chunk,
                        .chunks = unit.end_chunk - unit.first_chunk});
    }
  }
}

size_t AttentionPlan::queries(const AttentionItem& item) const {
  size_t count = 0;
  for (size_t u = item.first_unit; u < item.first_unit + item.units; ++u) {
    count += units_[u].rows * units_[u].heads;
  }
  return count;
}

size_t AttentionPlan::chunk_cost(const AttentionItem& item) const {
  return queries(item) + k_reading_queries;
}

void AttentionPlan::cut_runs(size_t runs) {
  items_.clear();
  runs_.clear();
  size_t total = 0;
  for (const AttentionItem& work : works_) total += work.chunks * chunk_cost(work);
  size_t done = 0;
  size_t first_item = 0;
  for (const AttentionItem& work : works_) {
    const size_t cost = chunk_cost(work);
    for (size_t chunk = 0; chunk < work.chunks;) {
      const size_t boundary = std::min(total, ceil_div(total * (runs_.size() + 1), runs));
      size_t taken = work.chunks - chunk;
      if (done + taken * cost > boundary + total / runs / k_slack_parts) {
        const size_t room = boundary - std::min(done, boundary);
        taken = std::clamp<size_t>((room + cost / 2) / cost, 1, taken);
      }
      AttentionItem item = work;
      item.first_chunk += chunk;
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

/// Room for the partial results of units that more than one item works for; `floats` of each.
void AttentionPlan::place_partials(size_t floats) {
  split_units_.clear();
  size_t total = 0;
  const auto size = [floats](const AttentionUnit& unit) {
    return (unit.end_chunk - unit.first_chunk) * unit.rows * unit.heads * floats;
  };
  for (const AttentionItem& item : items_) {
    const AttentionUnit& unit = units_[item.first_unit];
    // The last chunk is always a unit's own, so it shows whether there are others.
    if (item.first_chunk == unit.first_chunk || item.first_chunk + item.chunks < unit.end_chunk) {
      continue;
    }
    split_units_.push_back(item.first_unit);
    total += size(unit);
  }
  if (partials_.size() < total) partials_.resize(total);
  float* next = partials_.data();
  for (const size_t index : split_units_) {
    AttentionUnit& unit = units_[index];
    unit.partials = next;
    next += size(unit);
  }
}

}  // namespace outrider::kernels
