#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider::kernels::cuda {

/// The blocks of one kernel call, their threads (a multiple of 32) and the memory that those share.
struct Launch {
  uint32_t x = 1, y = 1, z = 1;
  uint32_t threads = 0;
  size_t shared_bytes = 0;
};

struct BlockIndex {
  uint32_t x = 0, y = 0, z = 0;
};

/// Kernels that start with what no kernel writes, and only then wait for the kernel before them.
template <class Kernel>
inline constexpr bool waits_itself = requires {
  Kernel::k_waits_itself;
};

}  // namespace outrider::kernels::cuda
