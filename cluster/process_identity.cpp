#include "cluster/process_identity.hpp"

#include <algorithm>
#include <caf/detail/get_process_id.hpp>

#include "base/system.hpp"

namespace outrider::cluster {

uint32_t process_identity() {
  static const uint32_t identity = std::max(1u, static_cast<uint32_t>(random_bits()));
  return identity;
}

}  // namespace outrider::cluster

/// Takes the place of CAF's own, which is in a shared library; Wire checks that it does.
unsigned caf::detail::get_process_id() {
  return outrider::cluster::process_identity();
}
