#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.hpp"
#include "kernels/cuda/cuda_ops.hpp"
#include "kernels/cuda/emulated_device.hpp"
#include "kernels/cuda/gpu_test.hpp"
#include "model/noise.hpp"
#include "model/sampler.hpp"

namespace outrider::model {
namespace {

using kernels::RowDraw;
using kernels::cuda::Device;
using kernels::cuda::SampleRows;

constexpr uint64_t k_sampling_seed = 0x5A3B;

/// Rows of logits, some of which hold many equal ones, and how each draws.
struct Rows {
  Rows(uint32_t width, uint32_t count, Random& random) : vocabulary(width) {
    constexpr float k_temperatures[] = {0.0f, 0.7f, 1.0f, 1.7f, 1e-3f, 1e-38f, 1e-45f};
    for (uint32_t row = 0; row < count; ++row) {
      for (uint32_t i = 0; i < width; ++i) {
        const float x = (random.uniform() + random.uniform() - 1.0f) * 9.0f;
        logits.push_back(row % 3 == 0 ? std::nearbyint(x) : x);
      }
      draws.push_back({random.next_u64(), random.below(100'000), k_temperatures[row % 7], row});
    }
  }
  std::span<const float> row(size_t i) const {
    return std::span(logits).subspan(i * vocabulary, vocabulary);
  }
  /// What the host draws; -1 for a row that is not finite.
  int32_t expected(size_t i) const {
    SamplingParams params;
    params.temperature = draws[i].temperature;
    SampleScratch scratch;
    const auto id = sample({row(i), params, draws[i].seed, draws[i].position}, scratch);
    return id.ok() ? *id : -1;
  }

  uint32_t vocabulary;
  std::vector<float> logits;
  std::vector<RowDraw> draws;
};

std::vector<int32_t> sample_on(Device& device, const Rows& rows) {
  const auto put = [&](const void* data, size_t bytes) {
    auto buffer = device.allocate(bytes);
    device.copy_in(buffer.get(), static_cast<const std::byte*>(data), bytes);
    return buffer;
  };
  std::vector<int32_t> chosen(rows.draws.size(), -2);
  const auto logits = put(rows.logits.data(), rows.logits.size() * sizeof(float));
  const auto draws = put(rows.draws.data(), rows.draws.size() * sizeof(RowDraw));
  const auto out = device.allocate(chosen.size() * sizeof(int32_t));
  const SampleRows kernel = {.logits = reinterpret_cast<const float*>(logits.get()),
                             .draws = reinterpret_cast<const RowDraw*>(draws.get()),
                             .vocabulary = rows.vocabulary,
                             .chosen = reinterpret_cast<int32_t*>(out.get())};
  device.run({.x = static_cast<uint32_t>(chosen.size()),
              .threads = SampleRows::k_threads,
              .shared_bytes = SampleRows::k_shared_bytes},
             kernel);
  device.copy_out(reinterpret_cast<std::byte*>(chosen.data()), out.get(),
                  chosen.size() * sizeof(int32_t));
  return chosen;
}

void expect_as_on_the_host(Device& device) {
  Random random(k_sampling_seed);
  for (const uint32_t vocabulary : {1, 3, 4, 511, 512, 2049, 5003}) {
    const Rows rows(vocabulary, 30, random);
    const std::vector<int32_t> chosen = sample_on(device, rows);
    for (size_t i = 0; i < chosen.size(); ++i) {
      EXPECT_EQ(chosen[i], rows.expected(i)) << "vocabulary " << vocabulary << " row " << i;
    }
  }
  Rows odd(700, 10, random);
  const float values[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f};
  for (size_t i = 0; i < 10; ++i) odd.logits[i * 700 + i * 69] = values[i % 5];
  std::fill_n(odd.logits.begin() + 3 * 700, 700, -0.0f);
  odd.logits[3 * 700 + 650] = 0.0f;
  const std::vector<int32_t> chosen = sample_on(device, odd);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(chosen[i], odd.expected(i)) << i;
    EXPECT_EQ(chosen[i] == -1, i % 5 < 3) << i;
  }
}

TEST(DeviceSampling, RowsChooseWhatTheHostChooses) {
  for (const bool backwards : {false, true}) {
    expect_as_on_the_host(*kernels::cuda::make_emulated_device({.backwards = backwards}));
  }
}

TEST(DeviceSampling, RowsChooseOnAGpuWhatTheHostChooses) {
  const auto device = kernels::cuda::open_device(0);
  if (!device.ok()) OUTRIDER_SKIP_WITHOUT_GPU(device.error().message);
  expect_as_on_the_host(**device);
}

TEST(DeviceSampling, NoiseHasTheBitsOfTheHost) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 65'537) {
    const auto draw = static_cast<uint32_t>(bits);
    const float device = kernels::cuda::gumbel(draw), host = gumbel(draw);
    ASSERT_EQ(std::memcmp(&device, &host, sizeof(host)), 0) << bits;
  }
  for (uint32_t group = 0; group < 1000; group += 37) {
    const auto expected = noise_bits(k_sampling_seed << 20, uint64_t{group} << 31, group);
    const auto draws =
        kernels::cuda::noise_bits(k_sampling_seed << 20, uint64_t{group} << 31, group);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(draws.of[i], expected[i]);
  }
}

}  // namespace
}  // namespace outrider::model
