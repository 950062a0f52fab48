#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.hpp"
#include "kernels/cuda/host_ops.test.hpp"
#include "kernels/test_support.hpp"

namespace outrider::kernels::cuda {
namespace {

using namespace kernels::testing_support;

constexpr uint64_t k_cuda_rows_seed = 0x8035;

class RowsOn : public cuda::testing_support::EachDevice {};

/// The same text in another place: the CPU's bits.
TEST_P(RowsOn, RopeHasTheBitsOfTheCpu) {
  Random random(k_cuda_rows_seed);
  std::vector<float> factors(64);
  for (float& f : factors) f = 1.0f + 7.0f * random.uniform();
  using Style = RopeParams::Style;
  const std::pair<RopeParams, size_t> cases[] = {
      {{Style::adjacent, 64, 10'000.0f, 1.0f, nullptr}, 64},
      {{Style::halves, 128, 1e6f, 0.25f, nullptr}, 128},
      {{Style::halves, 64, 500'000.0f, 0.5f, factors.data()}, 80},
      {{Style::halves, 20, 10'000.0f, 1.0f, nullptr}, 24},
      {{Style::adjacent, 128, 500'000.0f, 1.0f, factors.data(), true}, 128},
      {{Style::halves, 2, 10'000.0f, 1.0f, nullptr, true}, 1024},
      {{Style::halves, 2, 10'000.0f, 1.0f, nullptr, true}, 2}};
  const auto cpu = make_cpu_ops(1, default_isa());
  for (const auto& [params, head_dim] : cases) {
    constexpr size_t k_rows = 21;
    constexpr size_t k_heads = 3;
    std::vector<int32_t> positions(k_rows);
    for (int32_t& p : positions) p = static_cast<int32_t>(random.below(3000));
    positions[0] = 2999;
    positions[1] = 0;
    std::vector<float> x = random_floats(random, k_rows * k_heads * head_dim);
    for (float& value : x) {  // zeros have signs, too
      if (random.below(5) == 0) value = std::copysign(0.0f, value);
    }
    std::vector<float> expected = x;
    const auto table = ops_->make_rope_table(params, 3000);
    ops_->rope(*table, positions.data(), k_rows, k_heads, head_dim, x.data());
    const auto cpu_table = cpu->make_rope_table(params, 3000);
    cpu->rope(*cpu_table, positions.data(), k_rows, k_heads, head_dim, expected.data());
    EXPECT_TRUE(same_bits(x, expected))
        << "rotary_dim " << params.rotary_dim << " head_dim " << head_dim;
  }
}

TEST_P(RowsOn, EmbedReadsTheDequantisedRows) {
  for (const WeightType type : k_weight_types) {
    constexpr size_t k_rows = 37;
    const size_t cols = weight_type_info(type)->block_elements == 1 ? 45 : 512;
    Random random(k_cuda_rows_seed + static_cast<uint64_t>(type));
    const std::vector<std::byte> weights = random_weights(random, type, k_rows * cols);
    const std::vector<int32_t> ids = {36, 0, 17, 17, 15, 16, 31};
    std::vector<float> all(k_rows * cols);
    dequantize(type, weights.data(), all.size(), all.data());
    const auto matrix = ops_->pack({type, weights.data(), k_rows, cols});
    std::vector<float> out(ids.size() * cols);
    ops_->embed(*matrix, ids, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t row = static_cast<size_t>(ids[i / cols]);
      ASSERT_EQ(out[i], all[row * cols + i % cols]) << weight_type_info(type)->name << ' ' << i;
    }
  }
}

/// A factor larger than all weights of the row, which only zeros are multiplied by.
TEST_P(RowsOn, EmbedOfFactorsThatCountForNothing) {
  struct Case {
    WeightType type;
    size_t cols;
    std::vector<uint8_t> row;
  };
  const auto put = [](std::vector<uint8_t>& row, size_t at, float value) {
    const uint16_t bits = float_to_half(value);
    std::memcpy(&row.at(at), &bits, sizeof(bits));
  };
  Case codes{WeightType::q4_0, 64, std::vector<uint8_t>(2 * 18, 0x88)};  // each nibble says 0
  put(codes.row, 0, 0.05f);
  codes.row[2] = 0x98;
  put(codes.row, 18, 1000.0f);
  Case offsets{WeightType::q4_k, 256, std::vector<uint8_t>(144, 0x11)};
  std::fill_n(offsets.row.begin() + 4, 12, 0);  // the minima's bytes say 0
  for (const size_t scale : {4, 5, 6, 7, 12, 13, 14, 15}) offsets.row[scale] = 1;
  put(offsets.row, 0, 0.01f);
  put(offsets.row, 2, 1000.0f);
  Case scales{WeightType::q4_k, 512, offsets.row};
  put(scales.row, 2, 0.0f);
  scales.row.insert(scales.row.end(), scales.row.begin(), scales.row.begin() + 144);
  std::fill_n(scales.row.begin() + 144 + 4, 12, 0);
  put(scales.row, 144, 1000.0f);
  for (const Case& c : {codes, offsets, scales}) {
    const auto* const weights = reinterpret_cast<const std::byte*>(c.row.data());
    std::vector<float> expected(c.cols);
    dequantize(c.type, weights, c.cols, expected.data());
    ASSERT_TRUE(std::ranges::any_of(expected, [](float weight) { return weight != 0; }));
    const auto matrix = ops_->pack({c.type, weights, 1, c.cols});
    std::vector<float> out(c.cols);
    ops_->embed(*matrix, std::vector<int32_t>{0}, out.data());
    EXPECT_EQ(out, expected) << weight_type_info(c.type)->name;
  }
}

TEST_P(RowsOn, GatherTakesRows) {
  Random random(k_cuda_rows_seed);
  const std::vector<float> x = random_floats(random, 9 * 300);
  const std::vector<uint32_t> rows = {8, 0, 3, 3};
  std::vector<float> out(4 * 300);
  ops_->gather(x.data(), rows, 300, out.data());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::equal(&out[i * 300], &out[i * 300] + 300, &x[rows[i] * 300])) << i;
  }
}

TEST_P(RowsOn, AllocatedMemoryIsZeroAndKeepsWhatIsPutThere) {
  const Ops::Buffer buffer = ops_->allocate(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % 64, 0u);
  std::vector<std::byte> bytes(1000, std::byte{1});
  ops_->download(buffer.get(), bytes);
  EXPECT_EQ(bytes, std::vector<std::byte>(1000));
  bytes[7] = std::byte{9};
  ops_->upload(bytes, buffer.get());
  std::vector<std::byte> again(1000);
  ops_->download(buffer.get(), again);
  EXPECT_EQ(again, bytes);
}

OUTRIDER_EACH_DEVICE(RowsOn);

}  // namespace
}  // namespace outrider::kernels::cuda
