#include "kernels/cuda/emulate.hpp"

namespace outrider::kernels::cuda {

void emulate_products(const Launch& launch, const FewProducts& call, bool backwards) {
  with_weight_type(call.weight_type,
                   [&]<WeightType type>() { emulate(launch, FewRows<type>(call), backwards); });
}

}  // namespace outrider::kernels::cuda
