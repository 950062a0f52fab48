#include "model/gguf.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "model/gguf_image.test.hpp"

namespace outrider::model {
namespace {

using kernels::WeightType;

std::vector<std::byte> sample(uint32_t version = 3) {
  GgufImage image;
  image.header(version, 3, 12)
      .entry("u8", GgufType::u8, uint8_t{200})
      .entry("i8", GgufType::i8, int8_t{-3})
      .entry("u16", GgufType::u16, uint16_t{60000})
      .entry("i32", GgufType::i32, int32_t{7})
      .entry("u64", GgufType::u64, uint64_t{1} << 40)
      .entry("f32", GgufType::f32, 0.5f)
      .entry("f64", GgufType::f64, 0.25)
      .entry("bool", GgufType::boolean, uint8_t{1})
      .entry("text", "words")
      .array("names", GgufType::string, 2)
      .text("a")
      .text("")
      .array("ids", GgufType::i32, 3)
      .number(int32_t{1})
      .number(int32_t{-2})
      .number(int32_t{3})
      .array("scores", GgufType::f32, 1)
      .number(1.5f)
      .tensor("matrix", {32, 2}, static_cast<uint32_t>(WeightType::q8_0), 0)
      .tensor("norm", {2}, static_cast<uint32_t>(WeightType::f32), 96)
      .tensor("half", {2}, static_cast<uint32_t>(WeightType::f16), 128)
      .pad(32)
      .zeros(96)
      .number(1.0f)
      .number(-2.0f)
      .pad(32)
      .number(uint16_t{0x3C00})
      .number(uint16_t{0x4000});
  return image.bytes();
}

TEST(GgufFile, ReadsEveryKindOfValueAndTensor) {
  const auto bytes = sample();
  const auto file = GgufFile::parse(bytes, "sample");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 32u);
  EXPECT_EQ(file->metadata().size(), 12u);
  EXPECT_EQ(file->metadata()[8].key, "text");
  EXPECT_EQ(*file->get_u64("u8"), 200u);
  EXPECT_EQ(*file->get_u64("u16"), 60000u);
  EXPECT_EQ(*file->get_u64("i32"), 7u);
  EXPECT_EQ(*file->get_u64("u64"), uint64_t{1} << 40);
  EXPECT_EQ(*file->get_float("f32"), 0.5);
  EXPECT_EQ(*file->get_float("f64"), 0.25);
  EXPECT_EQ(*file->find_bool("bool"), std::optional(true));
  EXPECT_EQ(*file->get_string("text"), "words");
  ASSERT_EQ(file->get_strings("names")->size(), 2u);
  EXPECT_EQ((*file->get_strings("names"))[0], "a");
  EXPECT_EQ(*file->get_i32_array("ids"), (std::vector<int32_t>{1, -2, 3}));

  EXPECT_EQ(file->tensors().size(), 3u);
  const auto matrix = file->matrix("matrix", 2, 32);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ(matrix->type, WeightType::q8_0);
  EXPECT_EQ(file->find_tensor("matrix")->data.size(), 2u * 34);
  EXPECT_EQ(*file->vector("norm", 2), (std::vector<float>{1.0f, -2.0f}));
  EXPECT_EQ(*file->vector("half", 2), (std::vector<float>{1.0f, 2.0f}));
}

TEST(GgufFile, ReadsVersionTwo) {
  const auto bytes = sample(2);
  const auto file = GgufFile::parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 2u);
}

TEST(GgufFile, IsReadableAtAnOddAddress) {
  auto bytes = sample();
  bytes.insert(bytes.begin(), std::byte{0});
  const auto file = GgufFile::parse(std::span(bytes).subspan(1));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file->vector("norm", 2), (std::vector<float>{1.0f, -2.0f}));
}

TEST(GgufFile, HonoursTheStatedAlignment) {
  GgufImage image;
  image.header(3, 1, 1).entry("general.alignment", GgufType::u32, uint32_t{256});
  image.tensor("norm", {1}, 0, 256).pad(256).zeros(256).number(5.0f);
  const auto file = GgufFile::parse(image.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->alignment(), 256u);
  EXPECT_EQ(*file->vector("norm", 1), (std::vector<float>{5.0f}));
}

TEST(GgufFile, AcceptsTensorsInAnyOrderOfOffsets) {
  GgufImage image;
  image.header(3, 2, 0).tensor("b", {1}, 0, 32).tensor("a", {1}, 0, 0).pad(32);
  image.number(1.0f).pad(32).number(2.0f);
  const auto file = GgufFile::parse(image.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file->vector("a", 1), (std::vector<float>{1.0f}));
  EXPECT_EQ(*file->vector("b", 1), (std::vector<float>{2.0f}));
}

TEST(GgufFile, TellsAbsentFromWronglyTypedMetadata) {
  const auto bytes = sample();
  const auto file = GgufFile::parse(bytes, "sample");
  ASSERT_TRUE(file);
  EXPECT_FALSE(file->find_u64("nothing")->has_value());
  EXPECT_EQ(file->get_u64("nothing").error().code, ErrorCode::not_found);
  const auto wrong = file->get_u64("text");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message, "sample: metadata 'text' is string, expected an integer");
  EXPECT_EQ(wrong.error().field, "text");
  EXPECT_EQ(file->get_u64("i8").error().message, "sample: metadata 'i8' is negative");
  EXPECT_FALSE(file->get_u64("ids"));
  EXPECT_FALSE(file->get_float("u8"));
  EXPECT_FALSE(file->get_float("scores"));
  EXPECT_FALSE(file->find_bool("u8"));
  EXPECT_FALSE(file->get_string("names"));
  EXPECT_FALSE(file->get_strings("text"));
  EXPECT_FALSE(file->get_strings("ids"));
  EXPECT_FALSE(file->get_i32_array("scores"));
  EXPECT_FALSE(file->get_i32_array("names"));
  EXPECT_FALSE(file->get_i32_array("nothing"));
}

TEST(GgufFile, RefusesIntegersThatDoNotFitTheirArray) {
  GgufImage image;
  image.header(3, 0, 2).array("fits", GgufType::i64, 2);
  image.number(int64_t{INT32_MIN}).number(int64_t{INT32_MAX});
  image.array("wide", GgufType::u32, 1).number(uint32_t{0x80000000u});
  const auto file = GgufFile::parse(image.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(*file->get_i32_array("fits"), (std::vector<int32_t>{INT32_MIN, INT32_MAX}));
  EXPECT_FALSE(file->get_i32_array("wide"));
}

TEST(GgufFile, NamesBothShapesWhenAMatrixDiffers) {
  const auto bytes = sample();
  const auto file = GgufFile::parse(bytes, "sample");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->matrix("matrix", 3, 32).error().message,
            "sample: tensor 'matrix' is 2 x 32, expected 3 x 32");
  EXPECT_EQ(file->matrix("norm", 1, 2).error().message,
            "sample: tensor 'norm' is 2, expected 1 x 2");
  EXPECT_EQ(file->vector("norm", 3).error().message, "sample: tensor 'norm' is 2, expected 3");
  EXPECT_EQ(file->vector("matrix", 64).error().message,
            "sample: tensor 'matrix' is 2 x 32, expected 64");
  EXPECT_EQ(file->matrix("nothing", 1, 1).error().code, ErrorCode::not_found);
  EXPECT_EQ(file->vector("nothing", 1).error().code, ErrorCode::not_found);
}

TEST(GgufFile, RefusesVectorsThatAreQuantisedOrNotFinite) {
  GgufImage image;
  image.header(3, 2, 0).tensor("q", {32}, static_cast<uint32_t>(WeightType::q8_0), 0);
  image.tensor("inf", {1}, 0, 64).pad(32).zeros(64).number(INFINITY);
  const auto file = GgufFile::parse(image.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->vector("q", 32).error().code, ErrorCode::unsupported);
  EXPECT_EQ(file->vector("inf", 1).error().code, ErrorCode::corrupt);
}

TEST(GgufFile, ReportsFilesThatCannotBeOpened) {
  EXPECT_EQ(GgufFile::open("no/such/file.gguf").error().code, ErrorCode::not_found);
  EXPECT_EQ(GgufFile::open("/").error().code, ErrorCode::invalid_argument);
  const auto path = std::filesystem::path(testing::TempDir()) / "outrider-empty.gguf";
  std::filesystem::remove(path);
  std::ofstream(path).close();
  EXPECT_EQ(GgufFile::open(path.string()).error().code, ErrorCode::corrupt);
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(GgufFile::open(path.string()).error().code, ErrorCode::invalid_argument)
      << "and it does not wait for who writes";
  std::filesystem::remove(path);
}

/// Whether this address has a page in memory, by the highest bit of its entry in the page map.
bool is_resident(const std::byte* address) {
  const int map = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t entry = 0;
  const uint64_t page = reinterpret_cast<uintptr_t>(address) / 4096;
  EXPECT_EQ(::pread(map, &entry, sizeof(entry), static_cast<off_t>(page * 8)), 8);
  ::close(map);
  return entry >> 63 != 0;
}

TEST(GgufFile, ReleasedBytesLeaveMemoryAndComeBackWhenRead) {
  const auto file = GgufFile::open("tests/support/models/tiny-llama.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const std::span<const std::byte> data = file->find_tensor("token_embd.weight")->data;
  const std::vector<std::byte> before(data.begin(), data.end());
  EXPECT_TRUE(is_resident(data.data()));
  file->release(data);
  for (const size_t at : {size_t{0}, data.size() / 2, data.size() - 1}) {
    EXPECT_FALSE(is_resident(data.data() + at)) << at;
  }
  EXPECT_TRUE(std::equal(before.begin(), before.end(), data.begin()));
}

TEST(GgufFile, ReleasingBytesThatAreNotMappedKeepsThem) {
  const auto bytes = sample();
  const auto before = bytes;
  const auto file = GgufFile::parse(bytes);
  ASSERT_TRUE(file) << file.error().message;
  file->release(bytes);
  EXPECT_EQ(bytes, before);
}

TEST(GgufFile, StaysValidWhenMoved) {
  auto opened = GgufFile::open("tests/support/models/tiny-llama.gguf");
  ASSERT_TRUE(opened) << opened.error().message;
  const GgufFile file = std::move(*opened);
  EXPECT_EQ(*file.get_string("general.architecture"), "llama");
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), 512u);
  EXPECT_TRUE(file.matrix("token_embd.weight", 512, 64));
}

}  // namespace
}  // namespace outrider::model
