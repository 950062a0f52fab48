#include "kernels/cpu/packed_matrix.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/hash.hpp"
#include "kernels/test_support.hpp"

namespace outrider::kernels {
namespace {

/// 21 x 512 random weights.
struct Sample {
  explicit Sample(WeightType type) {
    Random random(0x9ACC + static_cast<uint64_t>(type));
    bytes = testing_support::random_weights(random, type, 21 * 512);
    view = {type, bytes.data(), 21, 512};
  }
  std::vector<std::byte> bytes;
  WeightView view;
};

/// Copies on disk live longer than a build. If this fails because the layout is another one, give
/// k_panel_packing another name and take over the new sums.
TEST(PackedMatrixTest, TheLayoutIsTheOneThatItsNameStandsFor) {
  EXPECT_EQ(k_panel_packing, "cpu panels 1");
  const std::map<WeightType, uint64_t> sums = {
      {WeightType::f32, 0x6593ff9db2838c09u},  {WeightType::f16, 0x67fabde4d0676885u},
      {WeightType::q4_0, 0x7848f1c819c88a98u}, {WeightType::q4_1, 0xaa99abe2556598e0u},
      {WeightType::q5_0, 0xbbb35a64104c2b1cu}, {WeightType::q5_1, 0x348edb9de9edef02u},
      {WeightType::q8_0, 0x61a987bc1621e433u}, {WeightType::q4_k, 0x7266dbd3439445b2u},
      {WeightType::q5_k, 0xa17ae3c8d52b1edfu}, {WeightType::q6_k, 0x9404529f4acc8f3cu},
      {WeightType::bf16, 0x43c96c3ac04646ecu},
  };
  ThreadPool pool(2);
  for (const WeightType type : testing_support::k_weight_types) {
    const Sample sample(type);
    const PackedMatrix matrix(sample.view, pool);
    EXPECT_EQ(hash64(matrix.packed()), sums.at(type)) << weight_type_info(type)->name;
  }
}

void expect_adopts(Ops& ops, const Sample& sample) {
  const std::shared_ptr<const Matrix> matrix = ops.pack(sample.view);
  const std::shared_ptr<const std::byte> share(matrix, matrix->packed().data());
  WeightView shape = sample.view;
  shape.data = nullptr;
  const auto adopted = ops.adopt(shape, matrix->bytes(), share);
  ASSERT_NE(adopted, nullptr);
  const int32_t ids[] = {0, 20, 7};
  std::vector<float> expected(3 * shape.cols), got(3 * shape.cols);
  ops.embed(*matrix, ids, expected.data());
  ops.embed(*adopted, ids, got.data());
  EXPECT_TRUE(testing_support::same_bits(got, expected)) << ops.description();
  EXPECT_EQ(ops.adopt(shape, matrix->bytes() - 64, share), nullptr);
  EXPECT_EQ(ops.adopt(shape, matrix->bytes() + 1, share), nullptr);
}

TEST(PackedMatrixTest, AMatrixOverAnothersBytesIsThatMatrix) {
  for (const WeightType type : testing_support::k_weight_types) {
    expect_adopts(*make_ref_ops(), Sample(type));
    expect_adopts(*make_cpu_ops(2, available_isas().back()), Sample(type));
  }
}

}  // namespace
}  // namespace outrider::kernels
