#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/attention_items.hpp"
#include "kernels/cuda/staging.hpp"

namespace outrider::kernels::cuda {

/// Steps of more rows start their kernels one by one: the device has work while they come.
inline constexpr uint32_t k_graph_rows_max = 64;
/// Kinds of steps that are remembered; beyond it the one that was longest ago is forgotten.
inline constexpr size_t k_graphs_max = 32;

/// What kernels of a step read of the host's, in memory that is the same in each step of its kind.
/// Rows and items are padded with what does nothing that anybody sees.
struct StepInputs {
  uint32_t rows = 0;
  const int32_t* ids = nullptr;        ///< [rows]
  const int32_t* positions = nullptr;  ///< [rows]
  uint32_t append_items = 0;
  const AppendItem* append = nullptr;
  uint32_t attention_items = 0;
  const AttentionItem* attention = nullptr;
  const int32_t* tables = nullptr;  ///< of all items
  AttentionPlan plan;               ///< of attention
};

/// Steps of few rows as graphs: one whose kernels would be started with the arguments of an earlier
/// one, which all follow from its kind, is started as a whole, after what it reads was copied to
/// where that one read. Numbers that would make too many kinds go up to powers of two. A kind's
/// first step runs by calls, its second one is recorded.
class StepGraphs {
 public:
  /// `growths` are those of all memory that kernels of a step are given.
  StepGraphs(Device& device, Staging& staging, uint64_t& growths)
      : device_(device), staging_(staging), growths_(growths), memory_(device, growths) {}

  /// For steps of such sizes, which may lie where those of others lay.
  void reserve(const StepSizes& sizes);
  /// Ops' begin_step and end_step.
  bool begin(const Step& step);
  bool end();
  /// Of the step whose calls are being made; null: they use what they are given.
  const StepInputs* inputs() const { return active_ ? &inputs_ : nullptr; }

 private:
  /// What the arguments of a step's kernels depend on.
  struct Kind {
    const StepSizes* sizes = nullptr;
    const std::byte* pool = nullptr;
    uint32_t rows = 0;
    uint32_t append_items = 0;
    uint32_t attention_items = 0;
    uint32_t queries_max = 0;
    uint32_t chunks = 0;

    friend bool operator==(const Kind&, const Kind&) = default;
  };
  struct Entry {
    Kind kind;
    uint64_t used = 0;
    bool has_run = false;
    std::unique_ptr<Graph> graph = {};
  };

  Kind stage(const Step& step);
  template <class T>
  size_t put(std::span<const T> values, size_t count);
  Entry& entry_of(const Kind& kind);

  Device& device_;
  Staging& staging_;
  uint64_t& growths_;
  uint64_t growths_seen_ = 0;
  DeviceScratch memory_;
  std::vector<std::byte> staged_;  ///< what goes there
  Items<AppendItem> append_;
  Items<AttentionItem> attention_;
  StepInputs inputs_;
  std::vector<Entry> entries_;
  Entry* entry_ = nullptr;  ///< of this step
  uint64_t steps_ = 0;
  bool active_ = false;
  bool records_ = false;
  bool is_full_ = false;  ///< there was no memory for a graph
};

/// The most bytes that such a step's inputs take.
size_t step_inputs_bytes_max(const StepSizes& sizes);

}  // namespace outrider::kernels::cuda
