#include <string>

#include "kernels/cuda/cuda_ops.hpp"

namespace outrider::kernels::cuda {

Result<std::unique_ptr<Device>> open_device(uint32_t index, bool) {
  return fail(ErrorCode::unsupported,
              "device: cuda:" + std::to_string(index) +
                  ": this build has no CUDA (cmake -DOUTRIDER_CUDA=ON makes one that does)",
              "device");
}

}  // namespace outrider::kernels::cuda
