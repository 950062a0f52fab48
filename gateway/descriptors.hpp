#pragma once

#include <cstdint>

namespace outrider::gateway {

/// Raises this process's soft limit of open descriptors to its hard one; returns what it is then.
uint64_t raise_descriptor_limit();

/// How many of `wanted` connections each of `listeners` may hold, so that `descriptors` last.
uint32_t affordable_connections(uint32_t wanted, uint32_t listeners, uint64_t descriptors);

}  // namespace outrider::gateway
