#pragma once

#include <chrono>
#include <cstdint>

namespace outrider {

/// Seconds since 1970, as people and wire formats count.
using UnixTime = std::chrono::sys_seconds;

/// The machine's calendar clock and randomness. Thread-safe; they enter by constructor, so that
/// tests can fix them.
UnixTime wall_time();
uint64_t random_bits();

/// What `top -H` and debuggers call this thread; up to 15 bytes. Others bear their maker's name.
void name_this_thread(const char* name);

}  // namespace outrider
