#include "base/cpu_count.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>
#include <vector>

namespace outrider {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

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
  std::string quota = read_all(group + "/cpu.cfs_quota_us");
  if (!quota.empty() && quota.back() == '\n') quota.pop_back();
  return quota + ' ' + read_all(group + "/cpu.cfs_period_us");
}

/// One line of /proc/self/cgroup: "number:controllers:path", without controllers for version 2.
struct GroupLine {
  std::string controllers;
  std::string path;
};
std::optional<GroupLine> parse_group(const std::string& line) {
  const size_t first = line.find(':');
  const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos || line.substr(second + 1, 1) != "/") return std::nullopt;
  return GroupLine{line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool has_cpu(const std::string& controllers) {
  return (',' + controllers + ',').find(",cpu,") != std::string::npos;
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

std::optional<uint32_t> cgroup_quota(const std::string& proc_self_cgroup, const std::string& root) {
  std::optional<uint32_t> least;
  const auto see = [&](const std::optional<uint32_t>& quota) {
    if (quota) least = std::min(*quota, least.value_or(*quota));
  };
  // A container may not see where its group lies, but it sees it as the root.
  std::vector<GroupLine> groups = {{"", "/"}, {"cpu", "/"}};
  std::istringstream lines{proc_self_cgroup};
  for (std::string line; std::getline(lines, line);) {
    if (auto group = parse_group(line)) groups.push_back(std::move(*group));
  }
  for (auto& [controllers, path] : groups) {
    const bool is_first_version = has_cpu(controllers);
    if (!is_first_version && !controllers.empty()) continue;
    while (true) {
      if (is_first_version) {
        see(quota_cpus(quota_and_period(root + "/cpu" + path)));
        see(quota_cpus(quota_and_period(root + '/' + controllers + path)));
      } else {
        see(quota_cpus(read_all(root + path + "/cpu.max")));
      }
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/'));
    }
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
  if (const auto quota = cgroup_quota(read_all("/proc/self/cgroup"), "/sys/fs/cgroup")) {
    usable.threads = std::max(1u, std::min(usable.threads, *quota));
    usable.why += ", quota " + std::to_string(*quota);
  }
  return usable;
}

}  // namespace outrider
