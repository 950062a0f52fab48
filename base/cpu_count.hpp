#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace outrider {

/// CPUs that this process may keep busy: its affinity mask and its control group's quota, whichever
/// is less; at least 1. Reads /proc and /sys.
uint32_t usable_cpus();

/// CPUs of a cgroup v2 `cpu.max` ("200000 100000": 2; rounded up), nothing for "max" or nonsense.
std::optional<uint32_t> quota_cpus(std::string_view cpu_max);

/// The v2 path in /proc/self/cgroup ("0::/a/b": "/a/b"); "/" where there is none.
std::string cgroup_path(std::string_view proc_self_cgroup);

}  // namespace outrider
