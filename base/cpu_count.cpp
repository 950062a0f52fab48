#include "base/cpu_count.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>

namespace outrider {
namespace {

std::string read_all(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

uint32_t affinity_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return std::thread::hardware_concurrency();
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

std::string cgroup_path(std::string_view proc_self_cgroup) {
  std::istringstream lines{std::string(proc_self_cgroup)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

uint32_t usable_cpus() {
  uint32_t cpus = affinity_cpus();
  // A group is held to its own quota and to those of the groups above it.
  std::string path = cgroup_path(read_all("/proc/self/cgroup"));
  while (true) {
    const auto quota = quota_cpus(read_all("/sys/fs/cgroup" + path + "/cpu.max"));
    if (quota) cpus = std::min(cpus, *quota);
    if (path.empty() || path == "/") break;
    path.resize(path.rfind('/'));
  }
  return std::max(1u, cpus);
}

}  // namespace outrider
