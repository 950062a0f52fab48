#pragma once

#include <cuda_runtime.h>

#include <new>

#include "base/check.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/gpu/device_block.cuh"

namespace outrider::kernels::cuda {

/// Ends the process when the driver reports an error (device.hpp says why).
inline void must(cudaError_t error, const char* what) {
  OUTRIDER_CHECK(error == cudaSuccess, what, cudaGetErrorString(error));
}

/// Blocks of a kernel that a multiprocessor shall have room for.
template <class Kernel>
inline constexpr uint32_t blocks_min = 1;
template <class Kernel>
requires requires {
  Kernel::k_blocks;
}
inline constexpr uint32_t blocks_min<Kernel> = Kernel::k_blocks;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::k_threads, blocks_min<Kernel>)
    run_kernel(const __grid_constant__ Kernel kernel) {
  DeviceBlock block;
  block.let_next_start();
  if constexpr (!waits_itself<Kernel>) block.wait_for_previous();
  kernel(block);
}

/// The driver loads code when it is first used, which takes memory: not in the middle of a step. A
/// block may then have as much shared memory as there is. Throws std::bad_alloc.
template <class Kernel>
void load_kernel(size_t shared_bytes_max) {
  cudaFuncAttributes code;
  const cudaError_t error = cudaFuncGetAttributes(&code, run_kernel<Kernel>);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw std::bad_alloc();
  }
  must(error, "load");
  must(cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(shared_bytes_max - code.sharedSizeBytes)),
       "shared memory");
}

/// Where and how kernels are started.
struct Queue {
  cudaStream_t stream = nullptr;
  bool overlaps = false;  ///< a kernel's blocks may start before the kernel before it has ended
};

template <class Kernel>
void launch_kernel(const Launch& launch, const Kernel& kernel, const Queue& queue) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(launch.x, launch.y, launch.z);
  config.blockDim = dim3(launch.threads);
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = queue.stream;
  config.attrs = &overlap;
  config.numAttrs = queue.overlaps ? 1 : 0;
  must(cudaLaunchKernelEx(&config, run_kernel<Kernel>, kernel), "launch");
}

/// By type of weights, in files of their own: they take long to compile.
template <WeightType type>
void launch_products(const Launch& launch, const FewProducts& call, const Queue& queue);
template <WeightType type>
void launch_products(const Launch& launch, const ManyProducts& call, const Queue& queue);
template <WeightType type>
void load_products(size_t shared_bytes_max);

}  // namespace outrider::kernels::cuda
