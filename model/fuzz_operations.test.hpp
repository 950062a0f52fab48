#pragma once

#include <cstdint>
#include <cstdlib>

namespace outrider::model {

/// How many random operations a twin test runs. OUTRIDER_FUZZ_OPERATIONS asks for a longer run.
inline uint64_t fuzz_operations(uint64_t usual) {
  const char* asked = std::getenv("OUTRIDER_FUZZ_OPERATIONS");
  return asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
}

}  // namespace outrider::model
