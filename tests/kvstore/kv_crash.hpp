#pragma once

#include <cstdint>
#include <string>

#include "kvstore/fixture.test.hpp"

namespace outrider::kvstore::crash {

/// What a writer reports through its pipe.
struct Event {
  enum class Kind : uint64_t { opened = 1, chain, published, removed };
  Kind kind = Kind::opened;
  uint64_t chain = 0;  ///< of `chain`: the number that it begins to write
  BlockId id{};        ///< of the others
};
static_assert(std::is_trivially_copyable_v<Event> && sizeof(Event) == 48);

struct WriterOptions {
  std::string directory;
  uint64_t seed = 0;
  uint64_t first_chain = 0;
  bool roomy = false;  ///< nothing leaves by itself or is dropped
  int events_fd = -1;
};

ColdStoreOptions store_options(const std::string& directory, bool roomy);

/// Blocks of a chain and their sizes follow from its number.
inline uint32_t chain_length(uint64_t chain) {
  return 1 + static_cast<uint32_t>(chain * 7 % 12);
}
inline size_t block_bytes(uint64_t chain) {
  return size_t{4096} << (chain % 5);
}

/// Writes until it is killed.
[[noreturn]] void run_writer(const WriterOptions& options);

}  // namespace outrider::kvstore::crash
