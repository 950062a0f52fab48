#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

/// An online CPU. Equal numbers mean one physical core, one level-3 cache, one memory node.
struct CpuPlace {
  uint32_t cpu = 0;
  uint32_t core = 0;
  uint32_t cache = 0;
  uint32_t node = 0;
  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

/// Ascending CPUs of a list as Linux writes it ("0-3,8"), nothing for nonsense.
std::optional<std::vector<uint32_t>> parse_cpu_list(std::string_view text);

/// The online CPUs of a directory like /sys/devices/system, ascending; none if it has no list of
/// them. Where nothing else is said a CPU is a core of its own, its cache is its node's, and there
/// is one node.
std::vector<CpuPlace> read_cpu_topology(const std::string& root);

/// CPUs in the order in which threads should take them: one of each physical core, those of one
/// cache and then of one node before the next; after them the cores' other CPUs likewise.
struct CpuOrder {
  std::vector<uint32_t> cpus;
  uint32_t cores = 0;
  uint32_t caches = 0;
  uint32_t nodes = 0;
};
/// Of those CPUs only; one that the topology lacks is a core of its own.
CpuOrder order_cpus(std::span<const CpuPlace> topology, std::span<const uint32_t> allowed);

enum class CpuBinding : uint8_t { automatic, on, off };

/// Which CPUs that many threads are bound to: none, or one each; and why, for people.
struct BindingPlan {
  std::vector<uint32_t> cpus;
  std::string why;
};
/// Automatic: bound where there is more than one cache or node and the threads take all cores.
/// Fewer threads could find another program on the same first cores.
BindingPlan plan_binding(CpuBinding binding, const CpuOrder& order, uint32_t threads);

/// Whether the system let the calling thread run there, and nowhere else from now on.
bool bind_this_thread(uint32_t cpu);
/// Whether it would let it run on each of them.
bool can_bind(std::span<const uint32_t> cpus);

}  // namespace outrider
