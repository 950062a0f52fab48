#include "base/system.hpp"

#include <pthread.h>

#include <random>

namespace outrider {

UnixTime wall_time() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}

uint64_t random_bits() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

void name_this_thread(const char* name) {
  ::pthread_setname_np(::pthread_self(), name);
}

}  // namespace outrider
