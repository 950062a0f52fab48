#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/emulated_block.hpp"

namespace outrider::kernels::cuda {

/// Runs all blocks of a kernel, one after the other.
template <class Kernel>
void emulate(const Launch& launch, const Kernel& kernel, bool backwards) {
  const uint64_t count = uint64_t{launch.x} * launch.y * launch.z;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = backwards ? count - 1 - i : i;
    const BlockIndex index = {static_cast<uint32_t>(at % launch.x),
                              static_cast<uint32_t>(at / launch.x % launch.y),
                              static_cast<uint32_t>(at / launch.x / launch.y)};
    EmulatedBlock block(launch, index, backwards);
    kernel(block);
    if constexpr (waits_itself<Kernel>) OUTRIDER_CHECK(block.has_waited());
  }
}

/// By type of weights, in files of their own: they take long to compile.
void emulate_products(const Launch& launch, const FewProducts& call, bool backwards);
void emulate_products(const Launch& launch, const ManyProducts& call, bool backwards);

}  // namespace outrider::kernels::cuda
