#pragma once

#include "kernels/cuda/gpu/launch.cuh"

namespace outrider::kernels::cuda {

template <WeightType type>
void launch_products(const Launch& launch, const FewProducts& call, const Queue& queue) {
  launch_kernel(launch, FewRows<type>(call), queue);
}
template <WeightType type>
void launch_products(const Launch& launch, const ManyProducts& call, const Queue& queue) {
  with_many_rows<type>(call, [&](const auto& kernel) { launch_kernel(launch, kernel, queue); });
}

template <WeightType type>
void load_products(size_t shared_bytes_max) {
  load_kernel<FewRows<type>>(shared_bytes_max);
  load_kernel<ManyRows<type, 2>>(shared_bytes_max);
  load_kernel<ManyRows<type, 4>>(shared_bytes_max);
  load_kernel<ManyRows<type, 8>>(shared_bytes_max);
  load_kernel<ManyRows<type, 16>>(shared_bytes_max);
}

}  // namespace outrider::kernels::cuda

/// Kernels of one type of weights.
#define OUTRIDER_PRODUCTS(type)                                                                \
  template void outrider::kernels::cuda::launch_products<outrider::kernels::WeightType::type>( \
      const Launch&, const FewProducts&, const Queue&);                                        \
  template void outrider::kernels::cuda::launch_products<outrider::kernels::WeightType::type>( \
      const Launch&, const ManyProducts&, const Queue&);                                       \
  template void outrider::kernels::cuda::load_products<outrider::kernels::WeightType::type>(size_t)
