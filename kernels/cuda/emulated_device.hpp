#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.hpp"

/// A device in plain C++, for tests: the kernels' own text, thread by thread, with checks for races
/// in shared memory (emulated_block.hpp). The host cannot touch what `allocate` gives: that ends
/// the process, as a kernel's access behind an allocation's last page does.
namespace outrider::kernels::cuda {

/// What a device was asked for.
struct EmulatedCounters {
  uint64_t allocations = 0;  ///< of either memory
  uint64_t kernels = 0;      ///< that were run or recorded
  uint64_t graphs = 0;
  uint64_t replays = 0;
};

struct EmulatedTraits {
  uint32_t multiprocessors = 4;
  size_t shared_bytes_max = size_t{163} << 10;
  bool backwards = false;  ///< the last blocks and threads first
  uint32_t graphs_max = UINT32_MAX;
  EmulatedCounters* counters = nullptr;
};
std::unique_ptr<Device> make_emulated_device(const EmulatedTraits& traits = {});

}  // namespace outrider::kernels::cuda
