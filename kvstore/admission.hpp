#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvstore/record.hpp"

namespace outrider::kvstore {

/// Which blocks are worth a write: those touched a second time, those that two chains go on from,
/// and those that a request asks for. Remembers the last touched blocks, at least `capacity` / 2
/// and at most `capacity` of them. Pure state, owned by one thread or guarded by its owner.
class Admission {
 public:
  explicit Admission(uint32_t capacity) : generation_(capacity / 2) {}

  /// Notes that the blocks of a chain, root first, were computed or used. Element i says whether
  /// block i is worth storing now.
  std::vector<bool> touch(std::span<const BlockId> chain, bool hint);

  size_t remembered() const { return young_.size() + old_.size(); }

 private:
  struct Touches {
    uint32_t count = 0;
    uint32_t children = 0;     ///< different ones seen, up to 2
    uint64_t first_child = 0;  ///< short_of
  };
  using Map = std::unordered_map<uint64_t, Touches>;

  size_t generation_;
  Map young_, old_;  // what is touched moves to young; a full young becomes old

  Touches& entry(uint64_t id);
};

}  // namespace outrider::kvstore
