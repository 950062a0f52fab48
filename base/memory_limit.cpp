#include "base/memory_limit.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace outrider {

std::optional<uint64_t> memory_limit(std::span<const ControlGroup> groups) {
  std::optional<uint64_t> least;
  for (const ControlGroup& group : groups) {
    const std::string text = text_of_file(
        group.directory + (group.is_first_version ? "/memory.limit_in_bytes" : "/memory.max"));
    uint64_t bytes = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), bytes);
    if (read.ec == std::errc()) least = std::min(bytes, least.value_or(bytes));
  }
  return least;
}

uint64_t usable_memory() {
  const auto pages = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const uint64_t all = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(all, memory_limit(own_control_groups("memory")).value_or(all));
}

}  // namespace outrider
