#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

/// One transformer layer. Matrices are [outputs, inputs].
struct LayerWeights {
  std::vector<float> attn_norm;                  ///< [hidden]
  std::unique_ptr<kernels::Matrix> attn_q;       ///< [heads * head_dim, hidden]
  std::unique_ptr<kernels::Matrix> attn_k;       ///< [kv_heads * head_dim, hidden]
  std::unique_ptr<kernels::Matrix> attn_v;       ///< [kv_heads * head_dim, hidden]
  std::unique_ptr<kernels::Matrix> attn_output;  ///< [hidden, heads * head_dim]
  std::vector<float> q_bias, k_bias, v_bias;     ///< empty unless ModelConfig::qkv_bias
  std::vector<float> ffn_norm;                   ///< [hidden]
  std::unique_ptr<kernels::Matrix> ffn_gate;     ///< [ffn, hidden]
  std::unique_ptr<kernels::Matrix> ffn_up;       ///< [ffn, hidden]
  std::unique_ptr<kernels::Matrix> ffn_down;     ///< [hidden, ffn]

  static const float* or_null(const std::vector<float>& bias) {
    return bias.empty() ? nullptr : bias.data();
  }
};

/// A model's weights in the layout of the back end that packed them. Immutable after loading; the
/// file may be closed.
struct Weights {
  std::unique_ptr<kernels::Matrix> token_embd;  ///< [vocab, hidden]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;           ///< [hidden]
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
