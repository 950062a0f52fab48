#pragma once

#include "kernels/test_support.hpp"

/// Products for the tests of back ends, from a seed.
namespace outrider::kernels::testing_support {

inline constexpr uint64_t k_matmul_seed = 0x3A71;

struct MatmulCase {
  WeightType type;
  size_t n, k, m;
  bool bias, accumulate;
};

inline std::ostream& operator<<(std::ostream& out, const MatmulCase& c) {
  return out << weight_type_info(c.type)->name << " n " << c.n << " k " << c.k << " m " << c.m
             << (c.bias ? " bias" : "") << (c.accumulate ? " accumulate" : "") << " seed "
             << k_matmul_seed;
}

/// One problem with its inputs; `run` solves rows [begin, end) on a back end.
struct MatmulProblem {
  explicit MatmulProblem(const MatmulCase& c)
      : what(c),
        random(k_matmul_seed + c.n * 1000 + c.k + c.m),
        weights(random_weights(random, c.type, c.n * c.k)),
        x(random_floats(random, c.m * c.k)),
        bias(random_floats(random, c.n)),
        old_y(random_floats(random, c.m * c.n)) {}

  std::vector<float> run(Ops& ops, const Matrix& matrix, size_t begin, size_t end) const {
    std::vector<float> y(old_y.begin() + static_cast<long>(begin * what.n),
                         old_y.begin() + static_cast<long>(end * what.n));
    const Product product = {.w = &matrix,
                             .bias = what.bias ? bias.data() : nullptr,
                             .accumulate = what.accumulate,
                             .y = y.data()};
    ops.matmul({x.data() + begin * what.k}, end - begin, {&product, 1});
    return y;
  }
  std::vector<float> run(Ops& ops) const { return run(ops, *ops.pack(view()), 0, what.m); }
  WeightView view() const { return {what.type, weights.data(), what.n, what.k}; }

  MatmulCase what;
  Random random;
  std::vector<std::byte> weights;
  std::vector<float> x, bias, old_y;
};

/// Each weight type with odd numbers of outputs and each remainder of k that its block allows.
inline std::vector<MatmulCase> matmul_cases() {
  std::vector<MatmulCase> cases;
  constexpr size_t k_rows[] = {1, 2, 3, 5, 8, 11, 33, 64};
  constexpr size_t k_outputs[] = {1, 15, 16, 17, 33, 50, 64, 95};
  for (const WeightType type : k_weight_types) {
    const size_t block = weight_type_info(type)->block_elements;
    for (size_t i = 0; i < std::size(k_rows); ++i) {
      const size_t k = block == 1 ? 1 + 37 * i : block * (1 + i % (block == 32 ? 8 : 2));
      const size_t n = k_outputs[(i + static_cast<size_t>(type)) % std::size(k_outputs)];
      cases.push_back({type, n, k, k_rows[i], i % 3 == 1, i % 2 == 1});
    }
  }
  return cases;
}

}  // namespace outrider::kernels::testing_support
