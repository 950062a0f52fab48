#include "base/cpu_topology.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

namespace outrider {
namespace {

/// The most that Linux is built for.
constexpr uint32_t k_cpus_max = 8192;

std::string read_line(const std::filesystem::path& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

/// The lowest CPU of the list in a file stands for all of them.
std::optional<uint32_t> first_cpu(const std::filesystem::path& path) {
  const auto cpus = parse_cpu_list(read_line(path));
  if (!cpus || cpus->empty()) return std::nullopt;
  return cpus->front();
}

std::map<uint32_t, uint32_t> nodes_of_cpus(const std::filesystem::path& root) {
  std::map<uint32_t, uint32_t> nodes;
  for (const uint32_t node :
       parse_cpu_list(read_line(root / "node/online")).value_or(std::vector<uint32_t>())) {
    const auto list = root / ("node/node" + std::to_string(node)) / "cpulist";
    const auto cpus = parse_cpu_list(read_line(list));
    if (!cpus) continue;
    for (const uint32_t cpu : *cpus) nodes[cpu] = node;
  }
  return nodes;
}

std::optional<uint32_t> level_3_cache(const std::filesystem::path& cpu) {
  for (int index = 0; index < 8; ++index) {
    const auto cache = cpu / ("cache/index" + std::to_string(index));
    if (read_line(cache / "level") == "3") return first_cpu(cache / "shared_cpu_list");
  }
  return std::nullopt;
}

std::string counted(uint32_t count, const char* thing) {
  return std::to_string(count) + ' ' + thing + (count == 1 ? "" : "s");
}

}  // namespace

std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::set<uint32_t> cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    uint32_t first = 0;
    auto parsed = std::from_chars(at, end, first);
    uint32_t last = first;
    if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    }
    if (parsed.ec != std::errc() || last < first || last >= k_cpus_max) return std::nullopt;
    for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
    at = parsed.ptr;
    if (at == end) break;
    if (*at != ',' || ++at == end) return std::nullopt;
  }
  return std::vector<uint32_t>(cpus.begin(), cpus.end());
}

std::vector<CpuPlace> read_cpu_topology(const std::string& root) {
  const std::filesystem::path base(root);
  const auto online = parse_cpu_list(read_line(base / "cpu/online"));
  if (!online) return {};
  const auto nodes = nodes_of_cpus(base);
  std::vector<CpuPlace> places;
  for (const uint32_t cpu : *online) {
    const auto directory = base / ("cpu/cpu" + std::to_string(cpu));
    const auto node = nodes.find(cpu);
    CpuPlace place{.cpu = cpu, .node = node == nodes.end() ? 0 : node->second};
    place.core = first_cpu(directory / "topology/thread_siblings_list").value_or(cpu);
    // Above all CPUs, so that no real cache has the number.
    place.cache = level_3_cache(directory).value_or(k_cpus_max + place.node);
    places.push_back(place);
  }
  return places;
}

CpuOrder order_cpus(std::span<const CpuPlace> topology, std::span<const uint32_t> allowed) {
  std::vector<CpuPlace> places;
  for (const uint32_t cpu : allowed) {
    const auto found = std::find_if(topology.begin(), topology.end(),
                                    [cpu](const CpuPlace& place) { return place.cpu == cpu; });
    places.push_back(found == topology.end() ? CpuPlace{.cpu = cpu, .core = cpu} : *found);
  }
  const auto rank = [](const CpuPlace& p) { return std::tuple(p.node, p.cache, p.core, p.cpu); };
  std::sort(places.begin(), places.end(),
            [&](const CpuPlace& a, const CpuPlace& b) { return rank(a) < rank(b); });
  CpuOrder order;
  std::set<uint32_t> cores, caches, nodes;
  std::vector<uint32_t> siblings;
  for (const CpuPlace& place : places) {
    (cores.insert(place.core).second ? order.cpus : siblings).push_back(place.cpu);
    caches.insert(place.cache);
    nodes.insert(place.node);
  }
  order.cpus.insert(order.cpus.end(), siblings.begin(), siblings.end());
  order.cores = static_cast<uint32_t>(cores.size());
  order.caches = static_cast<uint32_t>(caches.size());
  order.nodes = static_cast<uint32_t>(nodes.size());
  return order;
}

BindingPlan plan_binding(CpuBinding binding, const CpuOrder& order, uint32_t threads) {
  if (binding == CpuBinding::off) return {{}, "off"};
  if (threads > order.cpus.size()) {
    return {{},
            "off: more threads than " + counted(static_cast<uint32_t>(order.cpus.size()), "CPU")};
  }
  const std::string domains =
      counted(order.nodes, "memory node") + ", " + counted(order.caches, "level-3 cache");
  if (binding == CpuBinding::automatic) {
    if (order.caches <= 1 && order.nodes <= 1) return {{}, "off: " + domains};
    if (threads < order.cores) {
      return {{}, "off: " + counted(threads, "thread") + " on " + counted(order.cores, "core")};
    }
  }
  return {{order.cpus.begin(), order.cpus.begin() + threads}, "on: " + domains};
}

bool bind_this_thread(uint32_t cpu) {
  if (cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

bool can_bind(std::span<const uint32_t> cpus) {
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return false;
  const bool all = std::all_of(cpus.begin(), cpus.end(), bind_this_thread);
  return sched_setaffinity(0, sizeof(before), &before) == 0 && all;
}

}  // namespace outrider
