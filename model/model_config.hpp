#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/gguf.hpp"

namespace outrider::model {

/// Rotary embedding of a model; the owner of the factors that kernels::RopeParams points to.
struct RopeConfig {
  kernels::RopeParams::Style style = kernels::RopeParams::Style::adjacent;
  uint32_t rotary_dim = 0;
  float base = 10000.0f;
  float scale = 1.0f;          ///< 1 / linear scaling factor
  std::vector<float> factors;  ///< [rotary_dim / 2], empty without llama-3 frequency factors

  /// Valid as long as this object.
  kernels::RopeParams params() const {
    return {style, rotary_dim, base, scale, factors.empty() ? nullptr : factors.data()};
  }
};

/// What a GGUF file's metadata says about its network, checked: ranges, divisibility, and that
/// nothing in it asks for arithmetic that this build does not do.
struct ModelConfig {
  std::string architecture;  ///< "llama" or "qwen2"
  std::string name;          ///< general.name, may be empty
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t ffn = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;  ///< divides `heads`
  uint32_t head_dim = 0;
  uint32_t vocab = 0;  ///< rows of the embedding
  uint32_t context_length = 0;
  float rms_eps = 0.0f;
  float attention_scale = 0.0f;  ///< 1 / sqrt(head_dim)
  bool tied_head = false;        ///< the embedding is the output matrix, too
  bool qkv_bias = false;
  RopeConfig rope;

  uint32_t q_dim() const { return heads * head_dim; }
  uint32_t kv_dim() const { return kv_heads * head_dim; }

  static Result<ModelConfig> from_gguf(const GgufFile& file);
};

}  // namespace outrider::model
