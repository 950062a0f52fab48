#include <gtest/gtest.h>

#include "kernels/matmul_problem.test.hpp"

namespace outrider::kernels {
namespace {

using namespace testing_support;

using Case = MatmulCase;
using Problem = MatmulProblem;

double norm(const float* v, size_t n) {
  double sum = 1e-30;
  for (size_t i = 0; i < n; ++i) sum += double{v[i]} * v[i];
  return std::sqrt(sum);
}

/// A sum of k products in ascending order with one rounding each: errors add up like a random
/// walk, each relative to a partial sum that the norms bound. For coded weights each x is rounded
/// to a 65534th of the row's range, too: evenly spread errors, six standard deviations of their
/// sum.
Worst compare(const Problem& p, const std::vector<float>& got, const std::vector<float>& expected) {
  const auto [n, k, m] = std::tuple(p.what.n, p.what.k, p.what.m);
  std::vector<float> weights(n * k);
  dequantize(p.what.type, p.weights.data(), n * k, weights.data());
  Worst worst;
  for (size_t i = 0; i < m; ++i) {
    const double x_norm = norm(&p.x[i * k], k);
    double largest = 0;
    for (size_t c = 0; c < k; ++c) largest = std::max(largest, std::abs(double{p.x[i * k + c]}));
    const bool coded = weight_type_info(p.what.type)->block_elements > 1;
    const double rounding = coded ? 6.0 * largest / (65534.0 * std::sqrt(3.0)) : 0.0;
    for (size_t j = 0; j < n; ++j) {
      const double w_norm = norm(&weights[j * k], k);
      const double size = w_norm * x_norm + std::abs(p.bias[j]) + std::abs(p.old_y[i * n + j]);
      const double tolerance =
          0x1p-24 * (2.0 * std::sqrt(static_cast<double>(k)) + 4.0) * size + rounding * w_norm;
      worst.see(i * n + j, got[i * n + j], expected[i * n + j], tolerance);
    }
  }
  return worst;
}

TEST(MatmulTest, ResultsAreCloseToTheReferenceOnEachInstructionSet) {
  const auto ref = make_ref_ops();
  for (const Case& c : matmul_cases()) {
    const Problem problem(c);
    const std::vector<float> expected = problem.run(*ref);
    for (const Isa isa : available_isas()) {
      const auto ops = make_cpu_ops(2, isa);
      const Worst worst = compare(problem, problem.run(*ops), expected);
      ASSERT_LE(worst.share, 1.0) << c << ' ' << isa_name(isa) << ' ' << worst.text();
    }
  }
}

TEST(MatmulTest, BitsDependNeitherOnThreadsNorOnTheInstructionSet) {
  const auto backends = cpu_backends();
  for (const Case& c : matmul_cases()) {
    const Problem problem(c);
    const std::vector<float> expected = problem.run(*backends.front());
    for (const auto& ops : backends) {
      ASSERT_TRUE(same_bits(problem.run(*ops), expected)) << c << ' ' << ops->description();
    }
  }
}

/// Rows alone, in pairs, … give the bits of the whole batch.
TEST(MatmulTest, BitsOfARowDoNotDependOnTheRowsBesideIt) {
  for (const WeightType type : k_weight_types) {
    const Problem problem({type, 50, 256, 70, true, false});
    for (const Isa isa : available_isas()) {
      const auto ops = make_cpu_ops(2, isa);
      const auto matrix = ops->pack(problem.view());
      const std::vector<float> whole = problem.run(*ops, *matrix, 0, 70);
      for (const size_t rows : {1, 2, 3, 4, 5, 7, 8, 11, 33}) {
        for (size_t begin = 0; begin + rows <= 70; begin += rows == 1 ? 13 : rows) {
          const std::vector<float> part = problem.run(*ops, *matrix, begin, begin + rows);
          ASSERT_EQ(std::memcmp(part.data(), &whole[begin * 50], part.size() * sizeof(float)), 0)
              << problem.what << ' ' << isa_name(isa) << " rows " << begin << " + " << rows;
        }
      }
    }
  }
}

/// More rows than one pass holds, and more k.
TEST(MatmulTest, LargeBatchesEqualTheirRowsAlone) {
  const Case cases[] = {{WeightType::q4_1, 144, 640, 300, false, true},
                        {WeightType::f16, 144, 640, 300, false, true},
                        {WeightType::q4_k, 150, 4608, 110, true, false},
                        {WeightType::q6_k, 40, 4352, 130, false, false}};
  for (const Case& c : cases) {
    const Problem problem(c);
    for (const Isa isa : available_isas()) {
      const auto ops = make_cpu_ops(2, isa);
      const auto matrix = ops->pack(problem.view());
      const std::vector<float> whole = problem.run(*ops, *matrix, 0, c.m);
      for (size_t row = 0; row < c.m; row += 37) {
        const std::vector<float> alone = problem.run(*ops, *matrix, row, row + 1);
        ASSERT_EQ(std::memcmp(alone.data(), &whole[row * c.n], c.n * sizeof(float)), 0)
            << c << ' ' << isa_name(isa) << " row " << row;
      }
      if (isa != available_isas().back()) continue;
      const Worst worst = compare(problem, whole, problem.run(*make_ref_ops()));
      EXPECT_LE(worst.share, 1.0) << c << worst.text();
    }
  }
}

/// What quantising a row does at its ends.
TEST(MatmulTest, OddRowsOfActivationsKeepTheirMeaning) {
  Problem problem({WeightType::q8_0, 20, 64, 6, false, false});
  float* rows = problem.x.data();
  rows[0 * 64 + 5] = INFINITY;
  rows[1 * 64 + 63] = NAN;
  for (size_t k = 0; k < 64; ++k) rows[2 * 64 + k] = 0.0f;
  for (size_t k = 0; k < 64; ++k) rows[3 * 64 + k] = k % 2 == 0 ? 0x1p-140f : -0x1p-149f;
  for (size_t k = 0; k < 64; ++k) rows[4 * 64 + k] = k == 9 ? 0x1.FFFFFEp127f : 0.0f;
  const std::vector<float> expected = problem.run(*make_ref_ops());
  for (const auto& ops : cpu_backends()) {
    const std::vector<float> y = problem.run(*ops);
    for (size_t j = 0; j < 20; ++j) {
      EXPECT_TRUE(std::isnan(y[j])) << ops->description();
      EXPECT_TRUE(std::isnan(y[20 + j])) << ops->description();
      EXPECT_EQ(y[40 + j], 0.0f) << ops->description();
      EXPECT_EQ(y[60 + j], 0.0f) << ops->description();
      EXPECT_NEAR(y[80 + j] / expected[80 + j], 1.0f, 1e-6f) << ops->description();
      EXPECT_TRUE(std::isfinite(y[100 + j])) << ops->description();
    }
  }
}

/// Products of one call share the rows and nothing else.
TEST(MatmulTest, ProductsOfOneCallEqualCallsOfTheirOwn) {
  const Problem problem({WeightType::q5_0, 33, 96, 13, true, true});
  const Problem other({WeightType::f16, 50, 96, 13, false, false});
  const Problem third({WeightType::q8_0, 17, 96, 13, false, true});
  const auto ops = make_cpu_ops(2, available_isas().back());
  std::vector<std::unique_ptr<Matrix>> matrices;
  std::vector<std::vector<float>> y, expected;
  for (const Problem* p : {&problem, &other, &third}) {
    matrices.push_back(ops->pack(p->view()));
    y.push_back(p->old_y);
    expected.push_back(p->old_y);
  }
  const auto product = [&](size_t i, std::vector<float>& out) {
    return Product{.w = matrices[i].get(),
                   .bias = i == 0 ? problem.bias.data() : nullptr,
                   .accumulate = i != 1,
                   .y = out.data()};
  };
  for (size_t i = 0; i < 3; ++i) {
    const Product alone = product(i, expected[i]);
    ops->matmul({problem.x.data()}, 13, {&alone, 1});
  }
  const Product together[] = {product(0, y[0]), product(1, y[1]), product(2, y[2])};
  ops->matmul({problem.x.data()}, 13, together);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(y[i], expected[i])) << i;
}

std::vector<float> gated_by(Ops& ops, const float* x, size_t m, const Matrix& gate,
                            const Matrix& up) {
  std::vector<float> y(m * gate.rows());
  const Product product = {.w = &gate, .y = y.data(), .up = &up};
  ops.matmul({x}, m, {&product, 1});
  return y;
}

/// Gate and up of one type go through in one pass, others one after the other: what their own
/// products make, each row alone as in the batch, and the same bits on each back end.
TEST(MatmulTest, GatedProductsAreWhatTheirPartsMake) {
  struct Types {
    WeightType gate, up;
  };
  const Types types[] = {{WeightType::q4_1, WeightType::q4_1}, {WeightType::q8_0, WeightType::q8_0},
                         {WeightType::q4_k, WeightType::q4_k}, {WeightType::q6_k, WeightType::q6_k},
                         {WeightType::q5_0, WeightType::q8_0}, {WeightType::f32, WeightType::f32},
                         {WeightType::f16, WeightType::q4_1}};
  for (const Types& t : types) {
    for (const size_t m : {1, 2, 3, 7, 13, 64}) {
      const size_t n = m == 64 ? 128 : 50;
      const Problem gate({t.gate, n, 2304, m, false, false});
      const Problem up({t.up, n, 2304, m, false, false});
      std::vector<float> first;
      for (const auto& ops : cpu_backends()) {
        const auto w = ops->pack(gate.view());
        const auto u = ops->pack(up.view());
        const std::vector<float> g = gate.run(*ops, *w, 0, m);
        std::vector<float> y(m * n);
        const Product plain = {.w = u.get(), .y = y.data()};
        ops->matmul({gate.x.data()}, m, {&plain, 1});
        for (size_t i = 0; i < y.size(); ++i) y[i] *= g[i] / (1.0f + std::exp(-g[i]));
        const std::vector<float> got = gated_by(*ops, gate.x.data(), m, *w, *u);
        Worst worst;
        for (size_t i = 0; i < y.size(); ++i) {
          worst.see(i, got[i], y[i], 1e-6 * (1e-3 + std::abs(y[i])));
        }
        ASSERT_LE(worst.share, 1.0) << gate.what << ' ' << ops->description() << worst.text();
        if (first.empty()) first = got;
        ASSERT_TRUE(same_bits(got, first)) << gate.what << ' ' << ops->description();
        const std::vector<float> last = gated_by(*ops, &gate.x[(m - 1) * 2304], 1, *w, *u);
        ASSERT_EQ(std::memcmp(last.data(), &got[(m - 1) * n], n * sizeof(float)), 0)
            << gate.what << ' ' << ops->description();
      }
    }
  }
}

/// A norm in the call gives the bits of a norm before it; many rows and few take different ways.
TEST(MatmulTest, NormedRowsEqualRowsThatWereNormedBefore) {
  for (const WeightType type : {WeightType::q4_1, WeightType::q6_k, WeightType::f16}) {
    for (const size_t m : {1, 8, 9, 50}) {
      const Problem problem({type, 700, 512, m, false, false});
      const std::vector<float> weight(problem.bias.begin(), problem.bias.begin() + 512);
      std::vector<float> identity(512 * 512);
      for (size_t i = 0; i < 512; ++i) identity[i * 513] = 1.0f;
      const auto* bytes = reinterpret_cast<const std::byte*>(identity.data());
      for (const auto& ops : cpu_backends()) {
        const auto matrix = ops->pack(problem.view());
        const auto unit = ops->pack({WeightType::f32, bytes, 512, 512});
        std::vector<float> normed(m * 512), expected(m * 700), y(m * 700);
        const Rows rows = {problem.x.data(), weight.data(), 1e-5f};
        const Product norm = {.w = unit.get(), .y = normed.data()};
        ops->matmul(rows, m, {&norm, 1});
        const Product plain = {.w = matrix.get(), .y = expected.data()};
        ops->matmul({normed.data()}, m, {&plain, 1});
        const Product fused = {.w = matrix.get(), .y = y.data()};
        ops->matmul(rows, m, {&fused, 1});
        ASSERT_TRUE(same_bits(y, expected)) << problem.what << ' ' << ops->description();
      }
    }
  }
}

TEST(MatmulTest, NoRowsIsNoWork) {
  const Problem problem({WeightType::q8_0, 20, 32, 0, false, false});
  for (const auto& ops : cpu_backends()) EXPECT_TRUE(problem.run(*ops).empty());
}

TEST(MatmulTest, ThreadsMayChangeBetweenCalls) {
  const Problem problem({WeightType::q4_k, 100, 512, 9, false, false});
  const auto ops = make_cpu_ops(1, available_isas().back());
  const auto matrix = ops->pack(problem.view());
  const std::vector<float> expected = problem.run(*ops, *matrix, 0, 9);
  for (const uint32_t threads : {3u, 2u, 4u, 1u}) {
    ops->set_threads(threads);
    EXPECT_EQ(ops->threads(), threads);
    EXPECT_TRUE(same_bits(problem.run(*ops, *matrix, 0, 9), expected)) << threads;
  }
}

}  // namespace
}  // namespace outrider::kernels
