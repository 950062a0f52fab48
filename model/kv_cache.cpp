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
      length_(std::exchange(other.length_, 0)) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  if (this != &other) {
    reset();
    cache_ = other.cache_;
    table_ = std::exchange(other.table_, {});
    length_ = std::exchange(other.length_, 0);
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
  return static_cast<uint32_t>(std::count_if(
      table_.begin(), table_.end(), [&](int32_t id) { return cache_->pool_.refs(id) == 1; }));
}

bool KvSequence::append(uint32_t tokens) {
  if (blocks_for(tokens) > cache_->pool_.free()) return false;
  if (tokens == 0) return true;
  if (shared_tail()) {
    const int32_t own = cache_->take_copy(table_.back());
    cache_->pool_.unref(table_.back());
    table_.back() = own;
  }
  length_ += tokens;
  const uint32_t blocks = ceil_div(length_, cache_->geometry_.block_tokens);
  while (table_.size() < blocks) table_.push_back(cache_->take_zeroed());
  return true;
}

void KvSequence::crop(uint32_t length) {
  OUTRIDER_CHECK(length <= length_, length, length_);
  length_ = length;
  const uint32_t blocks = ceil_div(length, cache_->geometry_.block_tokens);
  while (table_.size() > blocks) {
    cache_->pool_.unref(table_.back());
    table_.pop_back();
  }
}

KvSequence KvSequence::fork() const {
  KvSequence child(*cache_);
  child.table_ = table_;
  child.length_ = length_;
  for (const int32_t id : table_) cache_->pool_.ref(id);
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
    : ops_(std::move(ops)), geometry_(geometry), memory_(std::move(memory)), pool_(blocks) {}

int32_t KvCache::take_zeroed() {
  return take_copy(static_cast<int32_t>(pool_.total()));
}

int32_t KvCache::take_copy(int32_t from) {
  const auto id = pool_.allocate();
  OUTRIDER_CHECK(id.has_value());
  ops_->copy_block(geometry_, from, *id, memory_.get());
  return *id;
}

void KvCache::check_conservation(std::span<const KvSequence* const> sequences) const {
  std::vector<uint32_t> expected(pool_.total(), 0);
  for (const KvSequence* sequence : sequences) {
    OUTRIDER_CHECK(sequence->table().size() ==
                   ceil_div(sequence->length(), geometry_.block_tokens));
    for (const int32_t id : sequence->table()) ++expected[static_cast<size_t>(id)];
  }
  pool_.check_conservation(expected);
}

}  // namespace outrider::model
