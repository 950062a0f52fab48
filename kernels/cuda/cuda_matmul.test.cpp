#include <gtest/gtest.h>

#include "kernels/cuda/host_ops.test.hpp"
#include "kernels/matmul_problem.test.hpp"

namespace outrider::kernels::cuda {
namespace {

using namespace kernels::testing_support;
class MatmulOn : public cuda::testing_support::EachDevice {};

/// The row goes in as halves of its range, and weights as halves of theirs: evenly spread errors,
/// six standard deviations of the row's and, where weights have 32 bits, of both. Sums of 16
/// products end with an error of 2^-23 of what stands there, which codes and offsets make larger
/// than the result.
Worst compare_halves(const MatmulProblem& p, const std::vector<float>& got,
                     const std::vector<float>& expected) {
  const auto [n, k, m] = std::tuple(p.what.n, p.what.k, p.what.m);
  std::vector<float> weights(n * k);
  dequantize(p.what.type, p.weights.data(), n * k, weights.data());
  const double roundings = p.what.type == WeightType::f32 ? 2.0 : 1.0;
  Worst worst;
  for (size_t i = 0; i < m; ++i) {
    double x_sum = 0;
    for (size_t c = 0; c < k; ++c) x_sum += std::abs(double{p.x[i * k + c]});
    for (size_t j = 0; j < n; ++j) {
      double squares = 0, largest = 0;
      for (size_t c = 0; c < k; ++c) {
        const double w = weights[j * k + c];
        squares += w * p.x[i * k + c] * w * p.x[i * k + c];
        largest = std::max(largest, std::abs(w));
      }
      const double size = std::abs(p.bias[j]) + std::abs(p.old_y[i * n + j]);
      const double tolerance = 6.0 * 0x1p-11 * std::sqrt(roundings * squares / 3.0) +
                               0x1p-23 * (4.0 * largest * x_sum + size) + 1e-30;
      worst.see(i * n + j, got[i * n + j], expected[i * n + j], tolerance);
    }
  }
  return worst;
}

TEST_P(MatmulOn, ResultsAreCloseToTheReference) {
  const auto ref = make_ref_ops();
  for (const MatmulCase& c : matmul_cases()) {
    const MatmulProblem problem(c);
    const Worst worst = compare_halves(problem, problem.run(*ops_), problem.run(*ref));
    ASSERT_LE(worst.share, 1.0) << c << ' ' << worst.text();
  }
}

TEST_P(MatmulOn, BitsDoNotDependOnHowWorkIsSplit) {
  const auto other_ops = other();
  if (other_ops == nullptr) return;  // compared once; of a GPU BitsOfARow… says it
  for (const MatmulCase& c : matmul_cases()) {
    const MatmulProblem problem(c);
    ASSERT_TRUE(same_bits(problem.run(*ops_), problem.run(*other_ops))) << c;
  }
}

/// Few rows, some more and many go different ways, of one and of several segments of k.
TEST_P(MatmulOn, BitsOfARowDoNotDependOnTheRowsBesideIt) {
  for (const WeightType type : k_weight_types) {
    const size_t k = weight_type_info(type)->block_elements == 1 ? 1100 : 1280;
    const MatmulProblem problem({type, 50, k, 70, true, false});
    const auto matrix = ops_->pack(problem.view());
    const std::vector<float> whole = problem.run(*ops_, *matrix, 0, 70);
    for (const size_t rows : {1, 2, 8, 9, 32, 33}) {
      for (size_t begin = 0; begin + rows <= 70; begin += rows == 1 ? 23 : 35) {
        const std::vector<float> part = problem.run(*ops_, *matrix, begin, begin + rows);
        ASSERT_EQ(std::memcmp(part.data(), &whole[begin * 50], part.size() * sizeof(float)), 0)
            << problem.what << " rows " << begin << " + " << rows;
      }
    }
  }
}

/// More outputs than one block takes, more rows, and more segments than one round has.
TEST_P(MatmulOn, LargeBatchesEqualTheirRowsAlone) {
  const MatmulCase cases[] = {{WeightType::q4_1, 200, 640, 150, false, true},
                              {WeightType::q4_k, 150, 4608, 40, true, false},
                              {WeightType::q6_k, 40, 4864, 130, false, false},
                              {WeightType::bf16, 150, 700, 129, false, false},
                              // So long that a stage of few rows is filled again.
                              {WeightType::q4_0, 17, 8256, 9, true, true},
                              {WeightType::q4_k, 17, 8448, 9, false, false},
                              {WeightType::q8_0, 17, 4160, 9, false, false},
                              {WeightType::bf16, 17, 2200, 9, false, false}};
  for (const MatmulCase& c : cases) {
    const MatmulProblem problem(c);
    const auto matrix = ops_->pack(problem.view());
    const std::vector<float> whole = problem.run(*ops_, *matrix, 0, c.m);
    for (size_t row = 0; row < c.m; row += 37) {
      const std::vector<float> alone = problem.run(*ops_, *matrix, row, row + 1);
      ASSERT_EQ(std::memcmp(alone.data(), &whole[row * c.n], c.n * sizeof(float)), 0)
          << c << " row " << row;
    }
    const Worst worst = compare_halves(problem, whole, problem.run(*make_ref_ops()));
    EXPECT_LE(worst.share, 1.0) << c << worst.text();
  }
}

/// What halves of a row's range do at its ends.
TEST_P(MatmulOn, OddRowsOfActivationsKeepTheirMeaning) {
  MatmulProblem problem({WeightType::q8_0, 20, 64, 6, false, false});
  float* rows = problem.x.data();
  rows[0 * 64 + 5] = INFINITY;
  rows[1 * 64 + 63] = NAN;
  for (size_t k = 0; k < 64; ++k) rows[2 * 64 + k] = 0.0f;
  for (size_t k = 0; k < 64; ++k) rows[3 * 64 + k] = k % 2 == 0 ? 0x1p-140f : -0x1p-149f;
  for (size_t k = 0; k < 64; ++k) rows[4 * 64 + k] = k == 9 ? 0x1.FFFFFEp127f : 0.0f;
  const std::vector<float> expected = problem.run(*make_ref_ops());
  const std::vector<float> y = problem.run(*ops_);
  for (size_t j = 0; j < 20; ++j) {
    EXPECT_TRUE(std::isnan(y[j]));
    EXPECT_TRUE(std::isnan(y[20 + j]));
    EXPECT_EQ(y[40 + j], 0.0f);
    EXPECT_NEAR(y[60 + j], expected[60 + j], 0x1p-140f);
    EXPECT_NEAR(y[80 + j] / expected[80 + j], 1.0f, 1e-3f);
    EXPECT_TRUE(std::isfinite(y[100 + j]));
  }
}

/// Products of one call share the rows and nothing else, whatever their types.
TEST_P(MatmulOn, ProductsOfOneCallEqualCallsOfTheirOwn) {
  for (const size_t m : {1, 13, 50}) {
    const MatmulProblem problems[] = {MatmulProblem({WeightType::q5_0, 33, 96, m, true, true}),
                                      MatmulProblem({WeightType::f16, 50, 96, m, false, false}),
                                      MatmulProblem({WeightType::q5_0, 70, 96, m, false, true})};
    std::vector<std::unique_ptr<Matrix>> matrices;
    std::vector<std::vector<float>> y, expected;
    std::vector<Product> together;
    for (const MatmulProblem& p : problems) matrices.push_back(ops_->pack(p.view()));
    for (const MatmulProblem& p : problems) y.push_back(p.old_y);
    for (size_t i = 0; i < 3; ++i) {
      Product product = {.w = matrices[i].get(),
                         .bias = i == 0 ? problems[0].bias.data() : nullptr,
                         .accumulate = i != 1};
      expected.push_back(problems[i].old_y);
      product.y = expected.back().data();
      ops_->matmul({problems[0].x.data()}, m, {&product, 1});
      product.y = y[i].data();
      together.push_back(product);
    }
    ops_->matmul({problems[0].x.data()}, m, together);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(y[i], expected[i])) << m << ' ' << i;
  }
}

TEST_P(MatmulOn, GatedProductsAreWhatTheirPartsMake) {
  const std::pair<WeightType, WeightType> types[] = {{WeightType::q4_k, WeightType::q4_k},
                                                     {WeightType::q5_0, WeightType::q8_0}};
  for (const auto& [gate_type, up_type] : types) {
    for (const size_t m : {1, 7, 40}) {
      const MatmulProblem gate({gate_type, 50, 768, m, false, false});
      const MatmulProblem up({up_type, 50, 768, m, false, false});
      const auto w = ops_->pack(gate.view());
      const auto u = ops_->pack(up.view());
      std::vector<float> g(m * 50), expected(m * 50), got(m * 50);
      const Product plain[] = {{.w = w.get(), .y = g.data()}, {.w = u.get(), .y = expected.data()}};
      ops_->matmul({gate.x.data()}, m, plain);
      for (size_t i = 0; i < g.size(); ++i) expected[i] *= g[i] / (1.0f + std::exp(-g[i]));
      const Product gated = {.w = w.get(), .y = got.data(), .up = u.get()};
      ops_->matmul({gate.x.data()}, m, {&gated, 1});
      Worst worst;
      for (size_t i = 0; i < got.size(); ++i) {
        worst.see(i, got[i], expected[i], 1e-6 * (1e-3 + std::abs(expected[i])));
      }
      ASSERT_LE(worst.share, 1.0) << gate.what << worst.text();
    }
  }
}

/// Norms are in float: close to the reference's rows, normed before.
TEST_P(MatmulOn, NormedRowsAreCloseToTheReference) {
  const auto ref = make_ref_ops();
  for (const size_t d : {1, 31, 33, 256, 257, 1000}) {
    MatmulProblem problem({WeightType::f16, 40, d, 5, false, false});
    const std::vector<float> weight = random_floats(problem.random, d);
    std::vector<float> y[2], identity(d * d);
    for (size_t i = 0; i < d; ++i) identity[i * d + i] = 1.0f;
    for (Ops* ops : {ops_.get(), ref.get()}) {
      const auto matrix = ops->pack(problem.view());
      std::vector<float>& out = y[ops == ref.get()];
      out.resize(5 * 40);
      const Product product = {.w = matrix.get(), .y = out.data()};
      ops->matmul({problem.x.data(), weight.data(), 1e-5f}, 5, {&product, 1});
    }
    const auto unit =
        ref->pack({WeightType::f32, reinterpret_cast<const std::byte*>(identity.data()), d, d});
    std::vector<float> normed(5 * d);
    const Product norm = {.w = unit.get(), .y = normed.data()};
    ref->matmul({problem.x.data(), weight.data(), 1e-5f}, 5, {&norm, 1});
    problem.x = normed;
    const Worst worst = compare_halves(problem, y[0], y[1]);
    EXPECT_LE(worst.share, 1.0) << d << ' ' << worst.text();
  }
}

TEST_P(MatmulOn, NoRowsIsNoWork) {
  const MatmulProblem problem({WeightType::q8_0, 20, 32, 0, false, false});
  EXPECT_TRUE(problem.run(*ops_).empty());
}

TEST_P(MatmulOn, AdoptedBytesAreTheMatrix) {
  const MatmulProblem problem({WeightType::q5_k, 37, 512, 3, false, false});
  const auto packed = ops_->pack(problem.view());
  EXPECT_TRUE(packed->packed().empty());
  EXPECT_EQ(packed->rows(), 37u);
  EXPECT_EQ(packed->cols(), 512u);
  EXPECT_EQ(ops_->adopt(problem.view(), packed->bytes() + 1, nullptr), nullptr);
}

OUTRIDER_EACH_DEVICE(MatmulOn);

}  // namespace
}  // namespace outrider::kernels::cuda
