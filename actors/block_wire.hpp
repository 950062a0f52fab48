#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "model/engine.hpp"

/// What two targets say on a line: one asks with a query, the other answers with the blocks that it
/// has, in order, and then says that it has no more. Little-endian. Pure.
namespace outrider::actors {

/// Tags of a line's messages; a block's is its number in the sequence.
inline constexpr uint64_t k_query_tag = ~uint64_t{0};
inline constexpr uint64_t k_end_tag = ~uint64_t{0} - 1;
/// There will be an answer: the engine is in a long step.
inline constexpr uint64_t k_wait_tag = ~uint64_t{0} - 2;

std::vector<std::byte> encode(const model::CachedQuery& query);
/// `corrupt` for bytes that are no query.
Result<model::CachedQuery> decode_query(std::span<const std::byte> bytes);

std::vector<std::byte> encode(const model::CachedBlock& block);
struct BlockView {
  std::span<const std::byte> k;
  std::span<const std::byte> v;
};
/// Nothing: the bytes are no block. Points into them.
std::optional<BlockView> decode_block(std::span<const std::byte> bytes);

}  // namespace outrider::actors
