#include "base/cpu_count.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <thread>
#include <vector>

namespace outrider {
namespace {

std::vector<uint32_t> affinity_cpus() {
  std::vector<uint32_t> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  } else {  // more CPUs than the set has places
    cpus.resize(std::max(1u, std::thread::hardware_concurrency()));
    std::iota(cpus.begin(), cpus.end(), 0u);
  }
  return cpus;
}

/// Of version 1: quota and period stand in files of their own.
std::string quota_and_period(const std::string& group) {
  std::string quota = text_of_file(group + "/cpu.cfs_quota_us");
  if (!quota.empty() && quota.back() == '\n') quota.pop_back();
  return quota + ' ' + text_of_file(group + "/cpu.cfs_period_us");
}

}  // namespace

std::optional<uint32_t> quota_cpus(std::string_view cpu_max) {
  uint64_t quota = 0;
  uint64_t period = 0;
  const char* end = cpu_max.data() + cpu_max.size();
  const auto first = std::from_chars(cpu_max.data(), end, quota);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, period);
  if (second.ec != std::errc() || quota == 0 || period == 0) return std::nullopt;
  return static_cast<uint32_t>(std::min<uint64_t>((quota - 1) / period + 1, UINT32_MAX));
}

std::optional<uint32_t> cgroup_quota(std::span<const ControlGroup> groups) {
  std::optional<uint32_t> least;
  for (const ControlGroup& group : groups) {
    const auto quota =
        quota_cpus(group.is_first_version ? quota_and_period(group.directory)
                                          : text_of_file(group.directory + "/cpu.max"));
    if (quota) least = std::min(*quota, least.value_or(*quota));
  }
  return least;
}

UsableCpus usable_cpus() {
  const std::vector<uint32_t> allowed = affinity_cpus();
  UsableCpus usable;
  usable.order = order_cpus(read_cpu_topology("/sys/devices/system"), allowed);
  usable.threads = usable.order.cores;
  usable.why = std::to_string(usable.order.cores) + " physical cores of " +
               std::to_string(allowed.size()) + " CPUs";
  if (const auto quota = cgroup_quota(own_control_groups("cpu"))) {
    usable.threads = std::max(1u, std::min(usable.threads, *quota));
    usable.why += ", quota " + std::to_string(*quota);
  }
  return usable;
}

}  // namespace outrider
