#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops.hpp"

/// What the fake model's keys and values are: a function of all tokens up to the block's end and of
/// the model, as those of a real one are.
namespace outrider::sim::cluster {

inline constexpr uint32_t k_block_tokens = 16;
/// As small as blocks get.
inline constexpr kernels::KvGeometry k_geometry{.layers = 1,
                                                .kv_heads = 1,
                                                .head_dim = 16,
                                                .block_tokens = k_block_tokens,
                                                .k_kind = kernels::KvKind::q3,
                                                .v_kind = kernels::KvKind::q3};

/// Stands for the content of the block of these tokens, behind one with the content `before`; of
/// the first one that is the model's twist.
uint64_t content_after(uint64_t before, std::span<const int32_t> tokens);
/// Into all of the block's memory.
void write_content(uint64_t content, std::span<std::byte> block);
/// Whether that is in all of it.
bool has_content(uint64_t content, std::span<const std::byte> block);

}  // namespace outrider::sim::cluster
