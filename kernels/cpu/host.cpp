#include "kernels/host.hpp"

#include "base/philox.hpp"
#include "kernels/cpu/isa.hpp"

namespace outrider::kernels {
namespace {

const KernelTable& fastest() {
  static const KernelTable& table = kernels_of(default_isa());
  return table;
}

}  // namespace

bool find_peaks(std::span<const float> row, float* peaks) {
  return fastest().find_peaks(row.data(), row.size(), peaks);
}

void philox_block(const std::array<uint32_t, 4>& counter, const std::array<uint32_t, 2>& key,
                  uint32_t* out) {
  fastest().philox_block(counter.data(), key.data(), out);
}

}  // namespace outrider::kernels
