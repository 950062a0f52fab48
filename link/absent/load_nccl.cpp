#include "link/nccl_api.hpp"

namespace outrider::link {

Result<std::shared_ptr<Nccl>> open_nccl(uint32_t) {
  return fail(ErrorCode::unsupported, "this build has no CUDA");
}

}  // namespace outrider::link
