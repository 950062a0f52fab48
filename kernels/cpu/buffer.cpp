#include "kernels/cpu/buffer.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

namespace outrider::kernels {

Buffer make_buffer(size_t bytes) {
  constexpr size_t k_alignment = 64;
  const size_t rounded = (bytes + k_alignment) / k_alignment * k_alignment;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(k_alignment, rounded));
  if (data == nullptr) throw std::bad_alloc();
  std::memset(data, 0, rounded);
  return Buffer(data, [](std::byte* p) { std::free(p); });
}

}  // namespace outrider::kernels
