#pragma once

#include <cstdint>
#include <string>

namespace outrider::tools {

/// "1 block", "2 blocks".
inline std::string counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace outrider::tools
