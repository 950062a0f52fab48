#pragma once

#include <memory>

#include "kernels/cuda/device.hpp"

/// A device in plain C++, for tests: the kernels' own text, thread by thread, with checks for races
/// in shared memory (emulated_block.hpp). The host cannot touch what `allocate` gives: that ends
/// the process, as a kernel's access behind an allocation's last page does.
namespace outrider::kernels::cuda {

struct EmulatedTraits {
  uint32_t multiprocessors = 4;
  size_t shared_bytes_max = size_t{163} << 10;
  bool backwards = false;           ///< the last blocks and threads first
  uint64_t* allocations = nullptr;  ///< counts them, of either memory
};
std::unique_ptr<Device> make_emulated_device(const EmulatedTraits& traits = {});

}  // namespace outrider::kernels::cuda
