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

template <class Kernel>
__global__ void __launch_bounds__(Kernel::k_threads)
    run_kernel(const __grid_constant__ Kernel kernel) {
  DeviceBlock block;
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

template <class Kernel>
void launch_kernel(const Launch& launch, const Kernel& kernel, cudaStream_t stream) {
  run_kernel<Kernel>
      <<<dim3(launch.x, launch.y, launch.z), launch.threads, launch.shared_bytes, stream>>>(kernel);
  must(cudaGetLastError(), "launch");
}

/// By type of weights, in files of their own: they take long to compile.
template <WeightType type>
void launch_products(const Launch& launch, const FewProducts& call, cudaStream_t stream);
template <WeightType type>
void launch_products(const Launch& launch, const ManyProducts& call, cudaStream_t stream);
template <WeightType type>
void load_products(size_t shared_bytes_max);

}  // namespace outrider::kernels::cuda
