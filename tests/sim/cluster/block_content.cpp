#include "tests/sim/cluster/block_content.hpp"

#include <cstring>

#include "base/hash.hpp"

namespace outrider::sim::cluster {
namespace {

/// Each word says where it belongs, too.
uint64_t word_of(uint64_t content, size_t at) {
  return content * (2 * at + 1);
}

}  // namespace

uint64_t content_after(uint64_t before, std::span<const int32_t> tokens) {
  return hash64(std::as_bytes(tokens), before) | 1;
}

void write_content(uint64_t content, std::span<std::byte> block) {
  for (size_t at = 0; at < block.size() / sizeof(uint64_t); ++at) {
    const uint64_t word = word_of(content, at);
    std::memcpy(block.data() + at * sizeof(word), &word, sizeof(word));
  }
}

bool has_content(uint64_t content, std::span<const std::byte> block) {
  for (size_t at = 0; at < block.size() / sizeof(uint64_t); ++at) {
    const uint64_t word = word_of(content, at);
    if (std::memcmp(block.data() + at * sizeof(word), &word, sizeof(word)) != 0) return false;
  }
  return true;
}

}  // namespace outrider::sim::cluster
