#pragma once

#include <cstdint>

#include "base/result.hpp"

namespace outrider::tools {

/// Whether the system lets this process have so many threads more: all of them are started for a
/// moment. Asked before anything that counts on threads is; the error names the limits.
Result<void> check_thread_room(uint32_t count);

/// What one that serves takes, its compute threads included, and room for lines to others.
uint32_t serving_threads();

}  // namespace outrider::tools
