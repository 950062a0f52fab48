#include "model/kv_namespace.hpp"

#include <bit>

#include "base/block_id.hpp"
#include "kernels/kv_kind_flags.hpp"

namespace outrider::model {
namespace {

/// Raised when the meaning of an id, or the layout inside a block, changes.
constexpr std::string_view k_format = "outrider kv 2";

std::string_view bytes_of(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

uint64_t bits(float value) {
  return std::bit_cast<uint32_t>(value);
}

}  // namespace

Digest256 make_kv_namespace(const LoadedModel& model, const kernels::KvKinds& kinds,
                            uint32_t local_window) {
  const ModelConfig& c = model.config;
  FieldDigest digest;
  digest.field("format", k_format)
      .field("weights", bytes_of(model.weights.digest))
      .field("numerics", model.ops->numerics_class())
      .field("rope.style", static_cast<uint64_t>(c.rope.style))
      .field("rope.dim", c.rope.rotary_dim)
      .field("rope.base", bits(c.rope.base))
      .field("rope.scale", bits(c.rope.scale));
  for (const float factor : c.rope.factors) digest.field("rope.factor", bits(factor));
  digest.field("attention.scale", bits(c.attention_scale))
      .field("layers", c.layers)
      .field("kv_heads", c.kv_heads)
      .field("head_dim", c.head_dim)
      .field("tensor k", kernels::kv_key_kind_text(kinds))
      .field("tensor v", kernels::kv_kind_name(kinds.v));
  if (local_window != 0) digest.field("window", local_window);
  return digest.finish();
}

}  // namespace outrider::model
