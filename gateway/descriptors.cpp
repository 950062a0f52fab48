#include "gateway/descriptors.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "base/limits.hpp"

namespace outrider::gateway {

uint64_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT64_MAX;
  rlimit raised = limit;
  raised.rlim_cur = raised.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

uint32_t affordable_connections(uint32_t wanted, uint32_t listeners, uint64_t descriptors) {
  // A process that may hold less than it needs by itself still serves someone.
  const uint64_t spare = std::max<uint64_t>(descriptors, limits::descriptors_reserved + listeners) -
                         limits::descriptors_reserved;
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, spare / listeners));
}

}  // namespace outrider::gateway
