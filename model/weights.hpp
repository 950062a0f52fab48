#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/gguf.hpp"
#include "model/model_config.hpp"

namespace outrider::model {

/// Called now and then while weights are read: bytes done, bytes in all. False stops the loading,
/// which then ends as `cancelled`.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

struct LoadOptions {
  LoadProgress progress;
  std::string cache_directory;  ///< of packed weights (weights_cache.hpp); empty: none
  /// Told what is wrong with the cache: it never fails a loading.
  std::function<void(const std::string&)> warn;
};

/// Numbers in a back end's memory, or none.
class FloatVector {
 public:
  FloatVector() = default;
  FloatVector(kernels::Ops& ops, std::span<const float> values);

  /// Null for none.
  const float* data() const { return reinterpret_cast<const float*>(memory_.get()); }
  size_t size() const { return size_; }

 private:
  kernels::Ops::Buffer memory_{nullptr, [](std::byte*) {}};
  size_t size_ = 0;
};

/// One transformer layer. Matrices are [outputs, inputs].
struct LayerWeights {
  FloatVector attn_norm;                         ///< [hidden]
  std::unique_ptr<kernels::Matrix> attn_q;       ///< [heads * head_dim, hidden]
  std::unique_ptr<kernels::Matrix> attn_k;       ///< [kv_heads * head_dim, hidden]
  std::unique_ptr<kernels::Matrix> attn_v;       ///< [kv_heads * head_dim, hidden]
  std::unique_ptr<kernels::Matrix> attn_output;  ///< [hidden, heads * head_dim]
  FloatVector q_bias, k_bias, v_bias;            ///< none unless ModelConfig::qkv_bias
  FloatVector ffn_norm;                          ///< [hidden]
  std::unique_ptr<kernels::Matrix> ffn_gate;     ///< [ffn, hidden]
  std::unique_ptr<kernels::Matrix> ffn_up;       ///< [ffn, hidden]
  std::unique_ptr<kernels::Matrix> ffn_down;     ///< [hidden, ffn]
};

/// A model's weights in the layout of the back end that packed them. Immutable after loading; the
/// file may be closed.
struct Weights {
  std::unique_ptr<kernels::Matrix> token_embd;  ///< [vocab, hidden]
  std::vector<LayerWeights> layers;
  FloatVector output_norm;                  ///< [hidden]
  std::unique_ptr<kernels::Matrix> output;  ///< [vocab, hidden], null when tied
  /// SHA-256 over the configuration's numbers and the digests of each tensor's name, encoding,
  /// shape and bytes, in the network's order: independent of the file's layout. Equal digests mean
  /// equal networks.
  Digest256 digest{};
  uint64_t file_bytes = 0;  ///< tensor data of the file
  bool from_cache = false;

  const kernels::Matrix& head() const { return output ? *output : *token_embd; }
};

/// Packs all matrices of `file` with `ops`, checking each shape. A tensor that the network does not
/// use is an error: a model that needs it would answer wrongly without it. The file's pages leave
/// memory as soon as they are packed.
Result<Weights> load_weights(const GgufFile& file, const ModelConfig& config, kernels::Ops& ops,
                             const LoadOptions& options = {});

}  // namespace outrider::model
