#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/control_groups.hpp"

namespace outrider {

/// The least limit, in bytes, of these groups: `memory.max` of version 2, `memory.limit_in_bytes`
/// of version 1.
std::optional<uint64_t> memory_limit(std::span<const ControlGroup> groups);

/// Bytes of memory that this process may have: the machine's, or its control groups' limit if that
/// is less.
uint64_t usable_memory();

}  // namespace outrider
