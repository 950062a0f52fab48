#include "kernels/cpu/buffer.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace outrider::kernels {
namespace {

constexpr size_t k_alignment = 64;

/// The block that calloc gave stands in the eight bytes before the aligned address.
void release(std::byte* data) {
  void* block = nullptr;
  std::memcpy(&block, data - sizeof(block), sizeof(block));
  std::free(block);
}

}  // namespace

Buffer make_buffer(size_t bytes) {
  // calloc, not aligned_alloc and memset: large blocks stay untouched until they are used, so a
  // big KV pool costs what it holds, and packing takes its page faults on all threads.
  void* block = std::calloc(1, bytes + k_alignment);
  if (block == nullptr) throw std::bad_alloc();
  static_assert(alignof(std::max_align_t) >= sizeof(void*));
  const size_t gap = k_alignment - reinterpret_cast<uintptr_t>(block) % k_alignment;
  std::byte* data = static_cast<std::byte*>(block) + gap;
  std::memcpy(data - sizeof(block), &block, sizeof(block));
  return Buffer(data, release);
}

}  // namespace outrider::kernels
