#pragma once

#include <cstring>

#include "kernels/ops.hpp"

/// How a block lies in host memory, for the back ends whose pool is there.
namespace outrider::kernels {

/// Ops::read_block.
inline void split_block(const KvGeometry& geometry, int32_t block, const std::byte* pool,
                        std::byte* k, std::byte* v) {
  const std::byte* from = pool + static_cast<size_t>(block) * geometry.block_bytes();
  for (size_t i = 0; i < size_t{geometry.layers} * geometry.kv_heads; ++i) {
    std::memcpy(k + i * geometry.head_k_bytes(), from, geometry.head_k_bytes());
    from += geometry.head_k_bytes();
    std::memcpy(v + i * geometry.head_v_bytes(), from, geometry.head_v_bytes());
    from += geometry.head_v_bytes();
  }
}

/// Ops::write_block.
inline void join_block(const KvGeometry& geometry, int32_t block, const std::byte* k,
                       const std::byte* v, std::byte* pool) {
  std::byte* to = pool + static_cast<size_t>(block) * geometry.block_bytes();
  for (size_t i = 0; i < size_t{geometry.layers} * geometry.kv_heads; ++i) {
    std::memcpy(to, k + i * geometry.head_k_bytes(), geometry.head_k_bytes());
    to += geometry.head_k_bytes();
    std::memcpy(to, v + i * geometry.head_v_bytes(), geometry.head_v_bytes());
    to += geometry.head_v_bytes();
  }
}

}  // namespace outrider::kernels
