#include "kernels/cuda/emulate.hpp"

namespace outrider::kernels::cuda {

void emulate_products(const Launch& launch, const ManyProducts& call, bool backwards) {
  with_weight_type(call.weight_type, [&]<WeightType type>() {
    with_many_rows<type>(call, [&](const auto& kernel) { emulate(launch, kernel, backwards); });
  });
}

}  // namespace outrider::kernels::cuda
