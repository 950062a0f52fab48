#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/control_groups.hpp"
#include "base/cpu_topology.hpp"

namespace outrider {

/// What this process may keep busy.
struct UsableCpus {
  uint32_t threads = 1;  ///< physical cores of the affinity mask, or the quota if that is less
  CpuOrder order;        ///< of the affinity mask
  std::string why;       ///< "2 physical cores of 4 CPUs, quota 1"
};
/// Reads /proc and /sys.
UsableCpus usable_cpus();

/// CPUs of a cgroup v2 `cpu.max` ("200000 100000": 2; rounded up), nothing for "max" or nonsense.
std::optional<uint32_t> quota_cpus(std::string_view cpu_max);

/// The least quota, in CPUs, of these groups: `cpu.max` of version 2, `cpu.cfs_quota_us` and
/// `cpu.cfs_period_us` of version 1.
std::optional<uint32_t> cgroup_quota(std::span<const ControlGroup> groups);

}  // namespace outrider
