#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "kernels/ops.hpp"

namespace outrider::kernels {
namespace {

constexpr WeightType k_types[] = {WeightType::f32,  WeightType::f16,  WeightType::q4_0,
                                  WeightType::q4_1, WeightType::q5_0, WeightType::q5_1,
                                  WeightType::q8_0, WeightType::q4_k, WeightType::q5_k,
                                  WeightType::q6_k, WeightType::bf16};

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out(hex.size() / 2);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return out;
}

void put_half(std::vector<std::byte>& block, size_t at, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(block.data() + at, &bits, sizeof(bits));
}

TEST(WeightTypeTest, UnknownTypesHaveNoInfo) {
  EXPECT_EQ(weight_type_info(static_cast<WeightType>(4)), nullptr);
  EXPECT_EQ(weight_type_info(static_cast<WeightType>(9999)), nullptr);
  for (const WeightType type : k_types) ASSERT_NE(weight_type_info(type), nullptr);
  EXPECT_EQ(weight_type_info(WeightType::q4_k)->name, "Q4_K");
}

TEST(WeightTypeTest, HandWorkedQ4_1BlockDecodes) {
  std::vector<std::byte> block(20);
  put_half(block, 0, 0.5f);
  put_half(block, 2, -1.0f);
  block[4] = std::byte{0xF2};  // weight 0 is 2, weight 16 is 15
  float out[32];
  dequantize(WeightType::q4_1, block.data(), 32, out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[16], 6.5f);
  EXPECT_EQ(out[1], -1.0f);
}

TEST(WeightTypeTest, HandWorkedQ5_0BlockDecodes) {
  std::vector<std::byte> block(22);
  put_half(block, 0, 2.0f);
  block[2] = std::byte{0x01};  // fifth bit of weight 0
  block[5] = std::byte{0x80};  // fifth bit of weight 31
  block[6] = std::byte{0x03};
  block[21] = std::byte{0xF0};
  float out[32];
  dequantize(WeightType::q5_0, block.data(), 32, out);
  EXPECT_EQ(out[0], 2.0f * (19 - 16));
  EXPECT_EQ(out[31], 2.0f * (31 - 16));
  EXPECT_EQ(out[5], -32.0f);
}

TEST(WeightTypeTest, HandWorkedQ4_KScalesOfTheUpperGroupsDecode) {
  std::vector<std::byte> block(144);
  put_half(block, 0, 1.0f);
  put_half(block, 2, 0.5f);
  block[4 + 1] = std::byte{0x80};        // high bits of scale 5: 2
  block[4 + 5] = std::byte{0x40};        // high bits of minimum 5: 1
  block[4 + 9] = std::byte{0x73};        // low bits: scale 3, minimum 7
  block[16 + 64 + 4] = std::byte{0x90};  // weight 4 of group 5 is 9
  float out[256];
  dequantize(WeightType::q4_k, block.data(), 256, out);
  EXPECT_EQ(out[5 * 32 + 4], 35.0f * 9 - 0.5f * 23);
  EXPECT_EQ(out[5 * 32 + 5], -0.5f * 23);
  EXPECT_EQ(out[0], 0.0f);
}

TEST(WeightTypeTest, ValuesEqualThoseOfTheGgufPackage) {
  std::ifstream file("kernels/testdata/dequantize.txt");
  ASSERT_TRUE(file) << "run from the source root";
  size_t lines = 0;
  std::string name, block_hex, value_hex;
  while (file >> name >> block_hex >> value_hex) {
    ++lines;
    const auto block = from_hex(block_hex);
    const auto bytes = from_hex(value_hex);
    std::vector<float> expected(bytes.size() / sizeof(float));
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    std::vector<float> got(expected.size());
    const WeightType* type = nullptr;
    for (const WeightType& t : k_types) {
      if (weight_type_info(t)->name == name) type = &t;
    }
    ASSERT_NE(type, nullptr) << name;
    const WeightTypeInfo& info = *weight_type_info(*type);
    ASSERT_EQ(block.size(), got.size() / info.block_elements * info.block_bytes) << name;
    dequantize(*type, block.data(), got.size(), got.data());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << name << ' ' << i;
  }
  EXPECT_EQ(lines, 9u);
}

TEST(WeightTypeTest, FloatTypesKeepTheirValues) {
  const float values[] = {0.0f, -1.5f, 3.25f, 0x1p-20f};
  float out[4];
  dequantize(WeightType::f32, reinterpret_cast<const std::byte*>(values), 4, out);
  EXPECT_EQ(std::memcmp(out, values, sizeof(out)), 0);
  uint16_t halves[4];
  for (int i = 0; i < 4; ++i) halves[i] = float_to_half(values[i]);
  dequantize(WeightType::f16, reinterpret_cast<const std::byte*>(halves), 4, out);
  EXPECT_EQ(std::memcmp(out, values, sizeof(out)), 0);
}

}  // namespace
}  // namespace outrider::kernels
