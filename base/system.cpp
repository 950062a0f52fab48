#include "base/system.hpp"

#include <random>

namespace outrider {

UnixTime wall_time() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

uint64_t random_bits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace outrider
