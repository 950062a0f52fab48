#include "kernels/cuda/step_graphs.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.hpp"

namespace outrider::kernels::cuda {
namespace {

void check(const Step& step) {
  for (size_t i = 0; i < step.ids.size(); ++i) {
    const int32_t id = step.ids[i], position = step.positions[i];
    OUTRIDER_CHECK(id >= 0 && static_cast<size_t>(id) < step.sizes->vocabulary, id);
    OUTRIDER_CHECK(position >= 0 && static_cast<uint32_t>(position) < step.sizes->positions,
                   position);
  }
}

template <class T>
uint32_t padded(const std::vector<T>& items) {
  return std::bit_ceil(static_cast<uint32_t>(items.size()));
}

}  // namespace

void StepGraphs::reserve(const StepSizes& sizes) {
  entries_.clear();
  entries_.reserve(k_graphs_max);
  is_full_ = false;
  const size_t bytes = step_inputs_bytes_max(sizes);
  memory_.take<std::byte>(bytes);
  staging_.reserve(bytes);
}

/// Puts values behind what is staged, and zeros up to so many of them.
template <class T>
size_t StepGraphs::put(std::span<const T> values, size_t count) {
  static_assert(alignof(T) == 4 && sizeof(T) % 4 == 0);
  const size_t at = staged_.size();
  const auto bytes = std::as_bytes(values);
  staged_.insert(staged_.end(), bytes.begin(), bytes.end());
  staged_.resize(at + count * sizeof(T));
  return at;
}

/// Sends the step's inputs on their way.
StepGraphs::Kind StepGraphs::stage(const Step& step) {
  check(step);
  const StepSizes& sizes = *step.sizes;
  const DeviceTraits& traits = device_.traits();
  const Attention call =
      attention_call(sizes.geometry, step.segments, sizes.heads, traits.shared_bytes_max);
  append_items(sizes.geometry, step.segments, append_);
  attention_items(sizes.geometry, step.segments, sizes.heads, call.queries_max, attention_);

  const auto called = static_cast<uint32_t>(step.ids.size());
  inputs_.rows = std::min(std::bit_ceil(called), sizes.rows);
  inputs_.append_items = padded(append_.items);
  inputs_.attention_items = padded(attention_.items);
  const uint32_t chunks = std::bit_ceil(chunks_of(call, attention_.items));
  inputs_.plan = plan_attention(call, {inputs_.attention_items, chunks}, traits.multiprocessors);

  staged_.clear();
  const size_t ids = put(step.ids, inputs_.rows);
  const size_t positions = put(step.positions, inputs_.rows);
  const size_t append = put(std::span<const AppendItem>(append_.items), inputs_.append_items);
  const size_t attention =
      put(std::span<const AttentionItem>(attention_.items), inputs_.attention_items);
  // Both kinds of items have their tables in the same order.
  const size_t tables = put(std::span<const int32_t>(append_.tables), append_.tables.size());
  auto* const memory = memory_.take<std::byte>(staged_.size());
  staging_.copy(memory, staged_);
  inputs_.ids = reinterpret_cast<const int32_t*>(memory + ids);
  inputs_.positions = reinterpret_cast<const int32_t*>(memory + positions);
  inputs_.append = reinterpret_cast<const AppendItem*>(memory + append);
  inputs_.attention = reinterpret_cast<const AttentionItem*>(memory + attention);
  inputs_.tables = reinterpret_cast<const int32_t*>(memory + tables);
  return {.sizes = step.sizes,
          .pool = step.pool,
          .rows = inputs_.rows,
          .append_items = inputs_.append_items,
          .attention_items = inputs_.attention_items,
          .queries_max = call.queries_max,
          .chunks = inputs_.plan.chunks_max};
}

StepGraphs::Entry& StepGraphs::entry_of(const Kind& kind) {
  if (growths_ != growths_seen_) entries_.clear();  // their kernels have the old addresses
  growths_seen_ = growths_;
  const auto found = std::ranges::find(entries_, kind, &Entry::kind);
  if (found != entries_.end()) return *found;
  if (entries_.size() < k_graphs_max) return entries_.emplace_back(Entry{.kind = kind});
  Entry& oldest = *std::ranges::min_element(entries_, {}, &Entry::used);
  oldest = Entry{.kind = kind};
  return oldest;
}

bool StepGraphs::begin(const Step& step) {
  active_ = false;
  if (step.ids.empty() || step.ids.size() > k_graph_rows_max) return true;
  entry_ = &entry_of(stage(step));
  entry_->used = ++steps_;
  if (entry_->graph != nullptr) {
    device_.replay(*entry_->graph);
    return false;
  }
  active_ = true;
  records_ = std::exchange(entry_->has_run, true) && !is_full_;
  if (records_) device_.begin_recording();
  return true;
}

bool StepGraphs::end() {
  if (!active_) return true;
  if (std::exchange(records_, false)) {
    entry_->graph = device_.end_recording();
    is_full_ = entry_->graph == nullptr;
    if (is_full_) return false;
    device_.replay(*entry_->graph);
  }
  active_ = false;
  return true;
}

size_t step_inputs_bytes_max(const StepSizes& sizes) {
  const size_t rows = std::min(sizes.rows, k_graph_rows_max);
  const size_t segments = std::min<size_t>(sizes.segments, rows);
  const size_t blocks = sizes.positions / sizes.geometry.block_tokens + size_t{1};
  const size_t queries = rows * (sizes.heads / sizes.geometry.kv_heads);
  return 2 * std::bit_ceil(rows) * sizeof(int32_t) +
         std::bit_ceil(append_items_max(rows, segments)) * sizeof(AppendItem) +
         std::bit_ceil(attention_items_max(queries, segments)) * sizeof(AttentionItem) +
         segments * blocks * sizeof(int32_t);
}

}  // namespace outrider::kernels::cuda
