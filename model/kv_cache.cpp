#include "model/kv_cache.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "base/limits.hpp"

namespace outrider::model {
namespace {

uint32_t ceil_div(uint32_t a, uint32_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

KvSequence::KvSequence(KvSequence&& other) noexcept
    : cache_(other.cache_),
      table_(std::exchange(other.table_, {})),
      length_(std::exchange(other.length_, 0)),
      published_(std::exchange(other.published_, 0)) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    reset();
    cache_ = other.cache_;
    table_ = std::exchange(other.table_, {});
    length_ = std::exchange(other.length_, 0);
    published_ = std::exchange(other.published_, 0);
  }
  return *this;
}

bool KvSequence::shared_tail() const {
  return length_ % cache_->geometry_.block_tokens != 0 && cache_->pool_.refs(table_.back()) > 1;
}

uint32_t KvSequence::blocks_for(uint32_t tokens) const {
  if (tokens == 0) return 0;
  const uint32_t needed = ceil_div(length_ + tokens, cache_->geometry_.block_tokens);
  return needed - static_cast<uint32_t>(table_.size()) + (shared_tail() ? 1 : 0);
}

uint32_t KvSequence::exclusive_blocks() const {
  // Others share from the start: their number never grows along the table.
  const auto first = std::partition_point(table_.begin(), table_.end(),
                                          [&](int32_t id) { return cache_->holders(id) > 1; });
  return static_cast<uint32_t>(table_.end() - first);
}

bool KvSequence::append(uint32_t tokens) {
  if (blocks_for(tokens) > cache_->available()) return false;
  if (tokens == 0) return true;
  if (shared_tail()) {
    const int32_t own = cache_->take_copy(table_.back());
    cache_->release(table_.back());
    table_.back() = own;
  }
  length_ += tokens;
  const uint32_t blocks = ceil_div(length_, cache_->geometry_.block_tokens);
  while (table_.size() < blocks) table_.push_back(cache_->take_blank());
  return true;
}

void KvSequence::take(std::span<const BlockId> ids) {
  const uint32_t block_tokens = cache_->geometry_.block_tokens;
  OUTRIDER_CHECK(length_ == table_.size() * block_tokens && published_ == table_.size(), length_);
  for (const BlockId& id : ids) {
    const int32_t block = cache_->index_.find(id);
    OUTRIDER_CHECK(block != PrefixIndex::k_none);
    OUTRIDER_CHECK(cache_->index_.parent(block) ==
                   (table_.empty() ? PrefixIndex::k_none : table_.back()));
    cache_->hold(block);
    table_.push_back(block);
  }
  published_ = static_cast<uint32_t>(table_.size());
  length_ = published_ * block_tokens;
}

void KvSequence::take_up_to(int32_t block) {
  const int32_t end = table_.empty() ? PrefixIndex::k_none : table_.back();
  const auto had = static_cast<std::ptrdiff_t>(table_.size());
  OUTRIDER_CHECK(published_ == table_.size(), published_);
  for (; block != end; block = cache_->index_.parent(block)) {
    OUTRIDER_CHECK(block != PrefixIndex::k_none);
    cache_->hold(block);
    table_.push_back(block);
  }
  std::reverse(table_.begin() + had, table_.end());
  published_ = static_cast<uint32_t>(table_.size());
  length_ = published_ * cache_->geometry_.block_tokens;
}

void KvSequence::publish(const BlockId& id, uint64_t owner) {
  OUTRIDER_CHECK((published_ + 1) * cache_->geometry_.block_tokens <= length_, published_, length_);
  PrefixIndex& index = cache_->index_;
  int32_t& own = table_[published_];
  const int32_t parent = published_ == 0 ? PrefixIndex::k_none : table_[published_ - 1];
  const int32_t twin = index.find(id);
  if (twin == PrefixIndex::k_none) {
    cache_->pool_.ref(own);
    index.insert(own, id, parent, owner);
  } else if (twin != own) {
    OUTRIDER_CHECK(index.parent(twin) == parent, twin, parent);
    cache_->hold(twin);
    cache_->release(own);
    own = twin;
  }
  ++published_;
}

void KvSequence::crop(uint32_t length) {
  OUTRIDER_CHECK(length <= length_, length, length_);
  length_ = length;
  published_ = std::min(published_, length / cache_->geometry_.block_tokens);
  const uint32_t blocks = ceil_div(length, cache_->geometry_.block_tokens);
  while (table_.size() > blocks) {
    cache_->release(table_.back());
    table_.pop_back();
  }
}

KvSequence KvSequence::fork() const {
  KvSequence child(*cache_);
  child.table_ = table_;
  child.length_ = length_;
  child.published_ = published_;
  for (const int32_t id : table_) cache_->hold(id);
  return child;
}

Result<std::unique_ptr<KvCache>> KvCache::create(std::shared_ptr<kernels::Ops> ops,
                                                 const kernels::KvGeometry& geometry,
                                                 uint32_t blocks) {
  if (geometry.block_tokens == 0 || geometry.block_tokens % limits::block_tokens_unit != 0) {
    return fail(ErrorCode::invalid_argument,
                "block tokens must be a multiple of " + std::to_string(limits::block_tokens_unit) +
                    ", not " + std::to_string(geometry.block_tokens),
                "block_tokens");
  }
  const size_t bytes = (size_t{blocks} + 1) * geometry.block_bytes();
  try {
    kernels::Ops::Buffer memory = ops->allocate(bytes);
    return std::unique_ptr<KvCache>(
        new KvCache(std::move(ops), geometry, blocks, std::move(memory)));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::io, "no memory for a KV pool of " + std::to_string(bytes) + " bytes",
                "kv_memory");
  }
}

KvCache::KvCache(std::shared_ptr<kernels::Ops> ops, const kernels::KvGeometry& geometry,
                 uint32_t blocks, kernels::Ops::Buffer memory)
    : ops_(std::move(ops)),
      geometry_(geometry),
      memory_(std::move(memory)),
      pool_(blocks),
      index_(blocks,
             static_cast<uint32_t>(uint64_t{blocks} * limits::kv_pool_pinned_percent / 100)) {}

int32_t KvCache::take_blank() {
  return take_copy(blank());
}

void KvCache::fill_new_blocks(std::span<const float> numbers) {
  const int32_t block = blank();
  if (numbers.empty()) {
    const std::vector<std::byte> zeros(std::max(geometry_.k_bytes(), geometry_.v_bytes()));
    ops_->write_block(geometry_, block, zeros.data(), zeros.data(), memory_.get());
    return;
  }
  OUTRIDER_CHECK(numbers.size() ==
                 size_t{geometry_.block_tokens} * geometry_.kv_heads * geometry_.head_dim);
  const kernels::Ops::Buffer buffer = ops_->allocate(numbers.size_bytes());
  ops_->upload(std::as_bytes(numbers), buffer.get());
  const auto* const floats = reinterpret_cast<const float*>(buffer.get());
  const kernels::Segment segment = {.block_table = &block, .rows = geometry_.block_tokens};
  for (uint32_t layer = 0; layer < geometry_.layers; ++layer) {
    ops_->kv_append(geometry_, layer, {&segment, 1}, floats, floats, memory_.get());
  }
}

int32_t KvCache::take_copy(int32_t from) {
  if (pool_.free() == 0) evict(1);
  const auto id = pool_.allocate();
  OUTRIDER_CHECK(id.has_value());
  ops_->copy_block(geometry_, from, *id, memory_.get());
  return *id;
}

void KvCache::hold(int32_t id) {
  if (holders(id) == 0) index_.take(id);
  pool_.ref(id);
}

void KvCache::release(int32_t id) {
  pool_.unref(id);
  if (index_.contains(id) && pool_.refs(id) == 1) index_.release(id);
}

uint32_t KvCache::held(std::span<const BlockId> chain) const {
  const auto end = std::partition_point(
      chain.begin(), chain.end(), [&](const BlockId& id) { return holders(index_.find(id)) > 0; });
  return static_cast<uint32_t>(end - chain.begin());
}

uint32_t KvCache::evict(uint32_t blocks) {
  for (uint32_t i = 0; i < blocks; ++i) {
    const int32_t id = index_.evict();
    if (id == PrefixIndex::k_none) return i;
    pool_.unref(id);
  }
  return blocks;
}

KvCache::Reset KvCache::forget(std::optional<uint64_t> owner) {
  const PrefixIndex::Forgotten gone = index_.forget(owner);
  for (const int32_t id : gone.blocks) pool_.unref(id);
  return {static_cast<uint32_t>(gone.blocks.size()), gone.held};
}

void KvCache::check_conservation(std::span<const KvSequence* const> sequences) const {
  std::vector<uint32_t> expected(pool_.total(), 0);
  for (const KvSequence* sequence : sequences) {
    OUTRIDER_CHECK(sequence->table().size() ==
                   ceil_div(sequence->length(), geometry_.block_tokens));
    for (const int32_t id : sequence->table()) ++expected[static_cast<size_t>(id)];
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (index_.contains(static_cast<int32_t>(i))) ++expected[i];
  }
  pool_.check_conservation(expected);
  index_.check(expected);
}

}  // namespace outrider::model
