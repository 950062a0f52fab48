#include <gtest/gtest.h>

#include "kernels/test_support.hpp"

namespace outrider::kernels {
namespace {

using namespace testing_support;

constexpr uint64_t k_rows_seed = 0x8035;

/// Runs `operation` on each CPU back end: close to the reference, and the same bits on all.
template <class Operation>
void check_all(double tolerance, const std::string& what, const Operation& operation) {
  const std::vector<float> expected = operation(*make_ref_ops());
  std::vector<float> first;
  for (const auto& ops : cpu_backends()) {
    const std::vector<float> got = operation(*ops);
    ASSERT_EQ(got.size(), expected.size());
    Worst worst;
    for (size_t i = 0; i < got.size(); ++i) {
      worst.see(i, got[i], expected[i], tolerance * (0.01 + std::abs(expected[i])));
    }
    EXPECT_LE(worst.share, 1.0) << what << ' ' << ops->description() << ' ' << worst.text();
    if (first.empty()) first = got;
    EXPECT_TRUE(same_bits(got, first)) << what << ' ' << ops->description();
  }
}

/// The unit matrix, through which rows pass unchanged, moved to the right by `shift` columns.
std::unique_ptr<Matrix> shifted_unit(Ops& ops, size_t rows, size_t cols, size_t shift) {
  std::vector<float> weights(rows * cols);
  for (size_t i = 0; i < rows; ++i) weights[i * cols + i + shift] = 1.0f;
  return ops.pack(
      {WeightType::f32, reinterpret_cast<const std::byte*>(weights.data()), rows, cols});
}

TEST(RowsTest, RmsNormIsCloseToTheReferenceForEachRemainder) {
  for (const size_t d : {1, 7, 15, 16, 17, 33, 100, 576}) {
    Random random(k_rows_seed + d);
    const std::vector<float> x = random_floats(random, 40 * d, 3.0f);
    const std::vector<float> weight = random_floats(random, d);
    check_all(1e-6, "d " + std::to_string(d), [&](Ops& ops) {
      const auto unit = shifted_unit(ops, d, d, 0);
      std::vector<float> out(x.size());
      const Product product = {.w = unit.get(), .y = out.data()};
      ops.matmul({x.data(), weight.data(), 1e-5f}, 40, {&product, 1});
      return out;
    });
  }
}

/// silu(gate) * up; rows of x hold gate and up side by side.
std::vector<float> swiglu(Ops& ops, const std::vector<float>& x, size_t m, size_t d) {
  const auto gate = shifted_unit(ops, d, 2 * d, 0);
  const auto up = shifted_unit(ops, d, 2 * d, d);
  std::vector<float> out(m * d);
  const Product product = {.w = gate.get(), .y = out.data(), .up = up.get()};
  ops.matmul({x.data()}, m, {&product, 1});
  return out;
}

TEST(RowsTest, SwigluIsCloseToTheReference) {
  Random random(k_rows_seed);
  const std::vector<float> x = random_floats(random, 30 * 2 * 277, 8.0f);
  check_all(1e-6, "swiglu", [&](Ops& ops) { return swiglu(ops, x, 30, 277); });
}

TEST(RowsTest, SwigluOfHugeGatesIsFinite) {
  const std::vector<float> gate = {-1e30f, -200.0f, -89.0f, 0.0f, 89.0f, 200.0f, 1e30f};
  std::vector<float> x = gate;
  x.resize(2 * gate.size(), 1.0f);
  for (const auto& ops : cpu_backends()) {
    const std::vector<float> out = swiglu(*ops, x, 1, gate.size());
    for (size_t i = 0; i < gate.size(); ++i) EXPECT_EQ(out[i], gate[i] > 0 ? gate[i] : 0.0f);
  }
}

struct RopeCase {
  RopeParams params;
  size_t head_dim;
};

TEST(RowsTest, RopeIsCloseToTheReferenceInBothStyles) {
  Random random(k_rows_seed);
  std::vector<float> factors(64);
  for (float& f : factors) f = 1.0f + 7.0f * random.uniform();
  using Style = RopeParams::Style;
  const RopeCase cases[] = {
      {{Style::adjacent, 64, 10'000.0f, 1.0f, nullptr}, 64},
      {{Style::halves, 64, 100'000.0f, 1.0f, nullptr}, 64},
      {{Style::halves, 128, 1e6f, 0.25f, nullptr}, 128},
      {{Style::adjacent, 128, 500'000.0f, 1.0f, factors.data()}, 128},
      {{Style::halves, 64, 500'000.0f, 0.5f, factors.data()}, 80},
      {{Style::halves, 20, 10'000.0f, 1.0f, nullptr}, 24},
  };
  for (const RopeCase& c : cases) {
    constexpr uint32_t k_positions = 3000;
    constexpr size_t k_rows = 50;
    constexpr size_t k_heads = 3;
    std::vector<int32_t> positions(k_rows);
    for (int32_t& p : positions) p = static_cast<int32_t>(random.below(k_positions));
    positions[0] = 0;
    positions[1] = k_positions - 1;
    const std::vector<float> x = random_floats(random, k_rows * k_heads * c.head_dim);
    // A rotated pair is as long as before, so errors are relative to 1, not to the element.
    check_all(2e-5, "rotary_dim " + std::to_string(c.params.rotary_dim), [&](Ops& ops) {
      const auto table = ops.make_rope_table(c.params, k_positions);
      std::vector<float> out = x;
      ops.rope(*table, positions.data(), k_rows, k_heads, c.head_dim, out.data());
      return out;
    });
  }
}

TEST(RowsTest, HadamardOfEachHeadIsCloseToItsDefinition) {
  Random random(k_rows_seed);
  constexpr size_t k_rows = 11;
  constexpr size_t k_heads = 3;
  const std::vector<int32_t> positions(k_rows, 5);
  for (size_t head_dim = 2; head_dim <= 1024; head_dim *= 2) {
    const RopeParams params = {.rotary_dim = 2, .hadamard = true};
    const std::vector<float> x = random_floats(random, k_rows * k_heads * head_dim);
    // The rows of the matrix have length 1; each of the log2 head_dim sums is rounded once.
    check_all(1e-4, "head_dim " + std::to_string(head_dim), [&](Ops& ops) {
      const auto table = ops.make_rope_table(params, 6);
      std::vector<float> out = x;
      ops.rope(*table, positions.data(), k_rows, k_heads, head_dim, out.data());
      return out;
    });
  }
}

TEST(RowsTest, HadamardIsInItsNaturalOrder) {
  constexpr size_t k_head_dim = 64;
  const int32_t first_position = 0;  // where the rotary embedding changes nothing
  auto backends = cpu_backends();
  backends.push_back(make_ref_ops());
  for (const auto& ops : backends) {
    const auto table = ops->make_rope_table({.rotary_dim = k_head_dim, .hadamard = true}, 1);
    for (size_t j = 0; j < k_head_dim; ++j) {
      std::vector<float> x(k_head_dim);
      x[j] = 8.0f;
      ops->rope(*table, &first_position, 1, 1, k_head_dim, x.data());
      for (size_t i = 0; i < k_head_dim; ++i) {
        ASSERT_EQ(x[i], std::popcount(i & j) % 2 == 0 ? 1.0f : -1.0f)
            << ops->description() << ' ' << i << ' ' << j;
      }
    }
  }
}

TEST(RowsTest, EmbedReadsTheDequantisedRows) {
  for (const WeightType type : k_weight_types) {
    constexpr size_t k_rows = 37;
    const size_t cols = weight_type_info(type)->block_elements == 1 ? 45 : 512;
    Random random(k_rows_seed + static_cast<uint64_t>(type));
    const std::vector<std::byte> weights = random_weights(random, type, k_rows * cols);
    const std::vector<int32_t> ids = {36, 0, 17, 17, 15, 16, 31};
    std::vector<float> all(k_rows * cols);
    dequantize(type, weights.data(), all.size(), all.data());
    auto backends = cpu_backends();
    backends.push_back(make_ref_ops());
    for (const auto& ops : backends) {
      const auto matrix = ops->pack({type, weights.data(), k_rows, cols});
      EXPECT_EQ(matrix->rows(), k_rows);
      EXPECT_EQ(matrix->cols(), cols);
      std::vector<float> out(ids.size() * cols);
      ops->embed(*matrix, ids, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        const size_t row = static_cast<size_t>(ids[i / cols]);
        ASSERT_EQ(out[i], all[row * cols + i % cols])
            << weight_type_info(type)->name << ' ' << ops->description() << " element " << i;
      }
    }
  }
}

TEST(RowsTest, AllocatedMemoryIsZeroAndAligned) {
  for (const auto& ops : cpu_backends()) {
    const Ops::Buffer buffer = ops->allocate(1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % 64, 0u);
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(buffer[static_cast<size_t>(i)], std::byte{0});
  }
}

}  // namespace
}  // namespace outrider::kernels
