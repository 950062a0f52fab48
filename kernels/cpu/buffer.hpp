#pragma once

#include <cstddef>

#include "kernels/ops.hpp"

namespace outrider::kernels {

using Buffer = Ops::Buffer;

/// Zeroed memory, aligned to 64 bytes. Throws std::bad_alloc.
Buffer make_buffer(size_t bytes);

}  // namespace outrider::kernels
