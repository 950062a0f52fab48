#include "model/block_pool.hpp"

#include <limits>

#include "base/check.hpp"

namespace outrider::model {

BlockPool::BlockPool(uint32_t blocks) : refs_(blocks, 0) {
  OUTRIDER_CHECK(blocks <= std::numeric_limits<int32_t>::max(), blocks);
  free_.reserve(blocks);
  for (uint32_t i = blocks; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
}

std::optional<int32_t> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t id = free_.back();
  free_.pop_back();
  refs_[static_cast<size_t>(id)] = 1;
  return id;
}

void BlockPool::ref(int32_t id) {
  OUTRIDER_CHECK(refs(id) > 0, id);
  ++refs_[static_cast<size_t>(id)];
}

void BlockPool::unref(int32_t id) {
  OUTRIDER_CHECK(refs(id) > 0, id);
  if (--refs_[static_cast<size_t>(id)] == 0) free_.push_back(id);
}

uint32_t BlockPool::refs(int32_t id) const {
  OUTRIDER_CHECK(id >= 0 && static_cast<uint32_t>(id) < total(), id, total());
  return refs_[static_cast<size_t>(id)];
}

void BlockPool::check_conservation(std::span<const uint32_t> expected) const {
  OUTRIDER_CHECK(expected.size() == refs_.size(), expected.size(), refs_.size());
  std::vector<bool> listed(refs_.size(), false);
  for (const int32_t id : free_) {
    OUTRIDER_CHECK(refs(id) == 0, id, refs(id));
    OUTRIDER_CHECK(!listed[static_cast<size_t>(id)], id);
    listed[static_cast<size_t>(id)] = true;
  }
  for (size_t i = 0; i < refs_.size(); ++i) {
    OUTRIDER_CHECK(refs_[i] == expected[i], i, refs_[i], expected[i]);
    OUTRIDER_CHECK(listed[i] == (refs_[i] == 0), i, refs_[i]);
  }
}

}  // namespace outrider::model
