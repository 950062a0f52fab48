#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.hpp"
#include "model/loaded_model.hpp"

namespace outrider::model {

/// The rows of one step: ids[i] stands at positions[i]; the segments say which rows are consecutive
/// positions of which sequence, and name its blocks, which already have room for them.
struct StepBatch {
  std::span<const int32_t> ids;
  std::span<const int32_t> positions;
  std::span<const kernels::Segment> segments;
};

/// The network of the llama and qwen2 families over a paged KV pool. All activations are allocated
/// once; a step allocates nothing. Not thread-safe; owned by the engine.
class Transformer {
 public:
  struct Sizes {
    uint32_t rows = 0;        ///< of one step, at most
    uint32_t logit_rows = 0;  ///< of one call of `logits`, at most
    uint32_t sequences = 0;   ///< in one step, at most
    uint32_t positions = 0;   ///< longest sequence
  };
  Transformer(std::shared_ptr<const LoadedModel> model, const kernels::KvGeometry& geometry,
              const Sizes& sizes);

  /// Runs all layers: writes the rows' keys and values into `pool`, keeps their last hidden states.
  void forward(const StepBatch& batch, std::byte* pool);

  /// Logits [rows.size(), vocab] of rows of the last `forward`, in the host's memory. Valid until
  /// the next call.
  std::span<const float> logits(std::span<const uint32_t> rows);

  /// The same in two steps: only what is asked for is brought to the host.
  void compute_logits(std::span<const uint32_t> rows);
  struct Results {
    std::span<const float> logits;    ///< [rows, vocab], of which those that were read are there
    std::span<const int32_t> chosen;  ///< of each draw (RowSampler)
  };
  /// `rows` are those computed whose logits are wanted, ascending; `draws` at most
  /// logit_rows_max(), and none unless it samples().
  Results read(std::span<const uint32_t> rows, std::span<const kernels::RowDraw> draws);
  bool samples() const { return model_->ops->sampler() != nullptr; }

  /// Returns when the last `forward` has run, wherever it runs.
  void wait() { model_->ops->wait(); }

  uint32_t logit_rows_max() const { return sizes_.logit_rows; }

 private:
  void run_layers(const StepBatch& batch, std::byte* pool);
  void attention_block(uint32_t layer, const StepBatch& batch, std::byte* pool);
  void feed_forward_block(uint32_t layer, size_t m);
  float* take(size_t floats);

  std::shared_ptr<const LoadedModel> model_;
  kernels::KvGeometry geometry_;
  Sizes sizes_;
  kernels::StepSizes step_sizes_;
  std::unique_ptr<kernels::RopeTable> rope_;
  std::vector<kernels::Ops::Buffer> buffers_;
  float* hidden_ = nullptr;    ///< [rows, hidden] the residual stream
  float* q_ = nullptr;         ///< [rows, heads * head_dim]
  float* k_ = nullptr;         ///< [rows, kv_heads * head_dim]
  float* v_ = nullptr;         ///< [rows, kv_heads * head_dim]
  float* attended_ = nullptr;  ///< [rows, heads * head_dim]
  float* gated_ = nullptr;     ///< [rows, ffn]
  float* chosen_ = nullptr;    ///< [logit_rows, hidden]
  float* logits_ = nullptr;    ///< [logit_rows, vocab]
  size_t computed_ = 0;        ///< rows of logits_
  std::vector<uint32_t> all_rows_;
  int32_t* drawn_ = nullptr;  ///< [logit_rows]
  /// Likewise, for the host, where it cannot read those.
  float* host_logits_ = nullptr;
  int32_t* host_drawn_ = nullptr;
};

/// Layout of the KV pool for a model.
kernels::KvGeometry kv_geometry(const ModelConfig& config, uint32_t block_tokens,
                                const kernels::KvKinds& kinds);

}  // namespace outrider::model
