#pragma once

#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "base/half.hpp"
#include "base/philox.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/ops.hpp"

/// Material for the tests of this folder: random tensors from a seed, and each back end in turn.
namespace outrider::kernels::testing_support {

inline constexpr WeightType k_weight_types[] = {
    WeightType::f32,  WeightType::f16,  WeightType::q4_0, WeightType::q4_1,
    WeightType::q5_0, WeightType::q5_1, WeightType::q8_0, WeightType::q4_k,
    WeightType::q5_k, WeightType::q6_k, WeightType::bf16};

}  // namespace outrider::kernels::testing_support

namespace outrider::kernels::amx_emulated {
/// The AMX kernels over plain vectors and emulated tiles (cpu/amx.test.cpp).
const KernelTable& kernel_table() noexcept;
}  // namespace outrider::kernels::amx_emulated

namespace outrider::kernels::testing_support {

/// Bytes behind which no memory is: touching it ends the test.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t bytes)
      : length_((bytes + k_page - 1) / k_page * k_page + k_page),
        start_(
            ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        bytes_(bytes) {
    OUTRIDER_CHECK(start_ != MAP_FAILED && ::mprotect(guard(), k_page, PROT_NONE) == 0, bytes);
  }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  ~GuardedBytes() { ::munmap(start_, length_); }

  std::byte* data() const { return guard() - bytes_; }

 private:
  static constexpr size_t k_page = 4096;
  std::byte* guard() const { return static_cast<std::byte*>(start_) + length_ - k_page; }

  size_t length_;
  void* start_;
  size_t bytes_;
};

/// Every CPU back end with one to three threads, that of emulated AMX with two: all must give the
/// same bits.
inline std::vector<std::unique_ptr<Ops>> cpu_backends() {
  std::vector<std::unique_ptr<Ops>> out;
  for (const Isa isa : available_isas()) {
    for (uint32_t threads = 1; threads <= 3; ++threads) out.push_back(make_cpu_ops(threads, isa));
  }
  out.push_back(make_cpu_ops(2, amx_emulated::kernel_table(), "amx emulated"));
  return out;
}

/// Values around a normal distribution (sum of four uniforms), standard deviation 1.
inline std::vector<float> random_floats(Random& random, size_t n, float scale = 1.0f) {
  std::vector<float> out(n);
  for (float& v : out) {
    float sum = -2.0f;
    for (int i = 0; i < 4; ++i) sum += random.uniform();
    v = sum * 1.732f * scale;
  }
  return out;
}

/// Random file bytes of a weight matrix with scales of a usual size.
inline std::vector<std::byte> random_weights(Random& random, WeightType type, size_t elements) {
  const WeightTypeInfo& info = *weight_type_info(type);
  std::vector<std::byte> out(elements / info.block_elements * info.block_bytes);
  if (info.block_elements == 1) {
    const std::vector<float> values = random_floats(random, elements);
    for (size_t i = 0; i < elements; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
      const uint16_t low =
          type == WeightType::f16 ? float_to_half(values[i]) : static_cast<uint16_t>(bits >> 16);
      if (info.block_bytes == 4) std::memcpy(&out[4 * i], &bits, 4);
      if (info.block_bytes == 2) std::memcpy(&out[2 * i], &low, 2);
    }
    return out;
  }
  for (std::byte& b : out) b = static_cast<std::byte>(random.next_u32());
  for (size_t block = 0; block < out.size(); block += info.block_bytes) {
    const size_t at = type == WeightType::q6_k ? 208 : 0;
    const uint16_t d = float_to_half((random.uniform() - 0.4f) * 0.02f);
    const uint16_t m = float_to_half((random.uniform() - 0.5f) * 0.2f);
    std::memcpy(&out[block + at], &d, 2);
    const bool has_offset = type == WeightType::q4_1 || type == WeightType::q5_1 ||
                            type == WeightType::q4_k || type == WeightType::q5_k;
    if (has_offset) std::memcpy(&out[block + 2], &m, 2);
  }
  return out;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Where two results differ most, for messages.
struct Worst {
  size_t index = 0;
  float got = 0;
  float expected = 0;
  double share = 0;  ///< of the tolerance

  void see(size_t i, float g, float e, double tolerance) {
    const double s = std::abs(double{g} - e) / tolerance;
    if (s > share || std::isnan(g)) *this = {i, g, e, std::isnan(g) ? INFINITY : s};
  }
  std::string text() const {
    return "worst element " + std::to_string(index) + ": " + std::to_string(got) + " for " +
           std::to_string(expected) + ", " + std::to_string(share) + " of the tolerance";
  }
};

}  // namespace outrider::kernels::testing_support
