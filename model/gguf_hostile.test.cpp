#include <gtest/gtest.h>

#include <functional>

#include "base/limits.hpp"
#include "base/philox.hpp"
#include "model/gguf.hpp"
#include "model/gguf_image.test.hpp"

// Images that are wrong in one way each. Every one must be refused with the right code and a
// message that names the fault; under ASan, without reading outside of the image.

namespace outrider::model {
namespace {

constexpr uint64_t k_huge = ~uint64_t{0};
constexpr uint32_t k_f32 = 0;
constexpr uint32_t k_q4_1 = 3;
constexpr uint32_t k_q4_k = 12;

struct Case {
  const char* name;
  std::function<void(GgufImage&)> write;
  ErrorCode code;
  const char* message;  ///< part of it
};

void PrintTo(const Case& hostile, std::ostream* out) {
  *out << hostile.name;
}

class HostileGguf : public testing::TestWithParam<Case> {};

TEST_P(HostileGguf, IsRefused) {
  GgufImage image;
  GetParam().write(image);
  const auto file = GgufFile::parse(image.bytes(), "hostile");
  ASSERT_FALSE(file);
  EXPECT_EQ(to_string(file.error().code), to_string(GetParam().code)) << file.error().message;
  EXPECT_NE(file.error().message.find(GetParam().message), std::string::npos)
      << file.error().message;
  EXPECT_EQ(file.error().message.rfind("hostile: ", 0), 0u) << file.error().message;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return info.param.name;
}

constexpr auto k_corrupt = ErrorCode::corrupt;
constexpr auto k_large = ErrorCode::too_large;
constexpr auto k_unsupported = ErrorCode::unsupported;

const Case k_header_cases[] = {
    {"Empty", [](GgufImage&) {}, k_corrupt, "magic"},
    {"OtherMagic", [](GgufImage& i) { i.chars("GGML").zeros(64); }, k_corrupt, "not a GGUF"},
    {"ZipMagic", [](GgufImage& i) { i.chars("PK\x03\x04").zeros(64); }, k_corrupt, "not a GGUF"},
    {"MagicOnly", [](GgufImage& i) { i.chars("GGUF"); }, k_corrupt, "version"},
    {"VersionZero", [](GgufImage& i) { i.header(0, 0, 0); }, k_unsupported, "version 0"},
    {"VersionOne", [](GgufImage& i) { i.header(1, 0, 0); }, k_unsupported, "version 1"},
    {"VersionFour", [](GgufImage& i) { i.header(4, 0, 0); }, k_unsupported, "version 4"},
    {"BigEndian", [](GgufImage& i) { i.header(0x03000000, 0, 0); }, k_unsupported, "big-endian"},
    {"NoTensorCount", [](GgufImage& i) { i.chars("GGUF").number(3u); }, k_corrupt, "tensor count"},
    {"NoMetadataCount", [](GgufImage& i) { i.chars("GGUF").number(3u).number(uint64_t{0}); },
     k_corrupt, "metadata count"},
    {"HugeTensorCount", [](GgufImage& i) { i.header(3, k_huge, 0); }, k_large, "tensors"},
    {"TensorCountOverLimit", [](GgufImage& i) { i.header(3, limits::gguf_tensors_max + 1, 0); },
     k_large, "tensors"},
    {"TensorCountOverFile", [](GgufImage& i) { i.header(3, 2, 0).zeros(63); }, k_corrupt,
     "do not fit"},
    {"HugeMetadataCount", [](GgufImage& i) { i.header(3, 0, k_huge); }, k_large, "metadata"},
    {"MetadataCountOverFile", [](GgufImage& i) { i.header(3, 0, 65'536).zeros(100); }, k_corrupt,
     "do not fit"},
};

const Case k_metadata_cases[] = {
    {"EmptyKey", [](GgufImage& i) { i.header(3, 0, 1).entry("", GgufType::u32, 1u); }, k_corrupt,
     "key is empty"},
    {"HugeKey", [](GgufImage& i) { i.header(3, 0, 1).number(k_huge).zeros(32); }, k_large, "key"},
    {"KeyOverLimit",
     [](GgufImage& i) { i.header(3, 0, 1).entry(std::string(1025, 'k'), GgufType::u32, 1u); },
     k_large, "key of 1025 bytes"},
    {"KeyOverFile", [](GgufImage& i) { i.header(3, 0, 1).number(uint64_t{900}).zeros(32); },
     k_corrupt, "ends inside a metadata key"},
    {"KeyWithZeroByte",
     [](GgufImage& i) { i.header(3, 0, 1).entry(std::string_view("a\0b", 3), GgufType::u32, 1u); },
     k_corrupt, "printable"},
    {"KeyNotUtf8", [](GgufImage& i) { i.header(3, 0, 1).entry("a\xFF", GgufType::u32, 1u); },
     k_corrupt, "printable"},
    {"KeyTwice",
     [](GgufImage& i) {
       i.header(3, 0, 2).entry("k", GgufType::u32, 1u).entry("k", GgufType::u32, 1u);
     },
     k_corrupt, "'k': the key appears twice"},
    {"NoType", [](GgufImage& i) { i.header(3, 0, 1).text("long-enough-key"); }, k_corrupt,
     "a value type"},
    {"UnknownType",
     [](GgufImage& i) { i.header(3, 0, 1).entry("k", static_cast<GgufType>(13), 1u); }, k_corrupt,
     "unknown value type 13"},
    {"HugeType", [](GgufImage& i) { i.header(3, 0, 1).entry("k", static_cast<GgufType>(~0u), 1u); },
     k_corrupt, "unknown value type"},
    {"CutValue", [](GgufImage& i) { i.header(3, 0, 1).entry("k", GgufType::f64, 1.0f); }, k_corrupt,
     "ends inside a value"},
    {"BooleanTwo",
     [](GgufImage& i) { i.header(3, 0, 1).entry("k", GgufType::boolean, uint8_t{2}); }, k_corrupt,
     "neither 0 nor 1"},
    {"HugeString", [](GgufImage& i) { i.header(3, 0, 1).entry("k", GgufType::string, k_huge); },
     k_large, "string"},
    {"StringOverFile",
     [](GgufImage& i) { i.header(3, 0, 1).entry("k", GgufType::string, uint64_t{100}).zeros(99); },
     k_corrupt, "ends inside a string"},
    {"CutStringLength", [](GgufImage& i) { i.header(3, 0, 1).entry("k", GgufType::string, 0u); },
     k_corrupt, "ends inside a string"},
};

const Case k_array_cases[] = {
    {"ArrayOfArrays",
     [](GgufImage& i) { i.header(3, 0, 1).array("k", GgufType::array, 1).zeros(16); },
     k_unsupported, "arrays of arrays"},
    {"DeepArrays",
     [](GgufImage& i) {
       i.header(3, 0, 1).array("k", GgufType::array, 1);
       for (int depth = 0; depth < 100'000; ++depth) i.number(9u).number(uint64_t{1});
     },
     k_unsupported, "arrays of arrays"},
    {"ArrayOfUnknown",
     [](GgufImage& i) { i.header(3, 0, 1).array("k", static_cast<GgufType>(77), 1).zeros(16); },
     k_corrupt, "element type 77"},
    {"ArrayWithoutType",
     [](GgufImage& i) { i.header(3, 0, 1).key("key", GgufType::array).number(uint8_t{8}); },
     k_corrupt, "element type"},
    {"ArrayWithoutLength",
     [](GgufImage& i) { i.header(3, 0, 1).key("k", GgufType::array).number(8u); }, k_corrupt,
     "array's length"},
    {"HugeArray",
     [](GgufImage& i) { i.header(3, 0, 1).array("k", GgufType::u8, k_huge).zeros(64); }, k_large,
     "elements"},
    {"ArrayWhoseBytesOverflow",
     [](GgufImage& i) {
       i.header(3, 0, 1).array("k", GgufType::u64, (uint64_t{1} << 61) + 1).zeros(64);
     },
     k_large, "elements"},
    {"ArrayOverFile",
     [](GgufImage& i) { i.header(3, 0, 1).array("k", GgufType::u64, 9).zeros(71); }, k_corrupt,
     "ends inside an array"},
    {"StringArrayOverFile",
     [](GgufImage& i) { i.header(3, 0, 1).array("k", GgufType::string, 16'000'000).zeros(64); },
     k_corrupt, "ends inside an array"},
    {"HugeStringInArray",
     [](GgufImage& i) { i.header(3, 0, 1).array("k", GgufType::string, 1).number(k_huge); },
     k_large, "string of an array"},
    {"CutStringInArray",
     [](GgufImage& i) {
       i.header(3, 0, 1).array("k", GgufType::string, 2).text("abc").number(uint64_t{5}).zeros(4);
     },
     k_corrupt, "string of an array"},
};

template <class T>
std::function<void(GgufImage&)> alignment(GgufType type, T value) {
  return [type, value](GgufImage& i) { i.header(3, 0, 1).entry("general.alignment", type, value); };
}

const Case k_alignment_cases[] = {
    {"AlignmentZero", alignment(GgufType::u32, 0u), k_corrupt, "general.alignment is 0"},
    {"AlignmentOne", alignment(GgufType::u32, 1u), k_corrupt, "power of two"},
    {"AlignmentOdd", alignment(GgufType::u32, 33u), k_corrupt, "power of two"},
    {"AlignmentNotAPower", alignment(GgufType::u32, 48u), k_corrupt, "power of two"},
    {"AlignmentHuge", alignment(GgufType::u32, 0x80000000u), k_corrupt, "power of two"},
    {"AlignmentOver64Bits", alignment(GgufType::u64, uint64_t{1} << 63), k_corrupt, "power of two"},
    {"AlignmentNegative", alignment(GgufType::i32, int32_t{-32}), k_corrupt, "negative"},
    {"AlignmentFloat", alignment(GgufType::f32, 32.0f), k_corrupt, "expected an integer"},
    {"AlignmentText", [](GgufImage& i) { i.header(3, 0, 1).entry("general.alignment", "32"); },
     k_corrupt, "expected an integer"},
};

std::function<void(GgufImage&)> one_tensor(std::initializer_list<uint64_t> dims, uint32_t type,
                                           uint64_t offset, size_t data_bytes) {
  return [dims = std::vector<uint64_t>(dims), type, offset, data_bytes](GgufImage& i) {
    i.header(3, 1, 0).text("t").number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) i.number(dim);
    i.number(type).number(offset).pad(32).zeros(data_bytes);
  };
}

const Case k_tensor_cases[] = {
    {"EmptyTensorName",
     [](GgufImage& i) { i.header(3, 1, 0).tensor("", {1}, k_f32, 0).pad(32).zeros(32); }, k_corrupt,
     "name is empty"},
    {"LongTensorName",
     [](GgufImage& i) { i.header(3, 1, 0).tensor(std::string(257, 't'), {1}, k_f32, 0).zeros(64); },
     k_large, "name of 257 bytes"},
    {"TensorNameWithNewline",
     [](GgufImage& i) { i.header(3, 1, 0).tensor("a\nb", {1}, k_f32, 0).zeros(64); }, k_corrupt,
     "printable"},
    {"TensorTwice",
     [](GgufImage& i) {
       i.header(3, 2, 0).tensor("t", {1}, k_f32, 0).tensor("t", {1}, k_f32, 32).pad(32).zeros(64);
     },
     k_corrupt, "'t': the tensor appears twice"},
    {"NoDimensions", one_tensor({}, k_f32, 0, 64), k_corrupt, "0 dimensions"},
    {"FiveDimensions", one_tensor({1, 1, 1, 1, 1}, k_f32, 0, 64), k_corrupt, "5 dimensions"},
    {"HugeDimensionCount", [](GgufImage& i) { i.header(3, 1, 0).text("t").number(~0u).zeros(64); },
     k_corrupt, "dimensions"},
    {"ZeroDimension", one_tensor({4, 0}, k_f32, 0, 64), k_corrupt, "dimension 1 is zero"},
    {"HugeDimension", one_tensor({k_huge}, k_f32, 0, 64), k_large, "elements"},
    {"DimensionsThatWrapToZero", one_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, k_f32, 0, 64),
     k_large, "elements"},
    {"DimensionsThatWrapToOne", one_tensor({0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF}, k_f32, 0, 64),
     k_large, "elements"},
    {"DimensionsOverTheLimitTogether",
     one_tensor({uint64_t{1} << 20, uint64_t{1} << 20, 32}, k_f32, 0, 64), k_large, "elements"},
    {"BytesThatOverflowTheFile", one_tensor({uint64_t{1} << 44}, k_f32, 0, 64), k_corrupt,
     "ends after the file"},
    {"CutShape",
     [](GgufImage& i) { i.header(3, 1, 0).text("tttttttttttt").number(4u).number(uint64_t{1}); },
     k_corrupt, "ends inside a dimension"},
    {"CutType",
     [](GgufImage& i) {
       i.header(3, 1, 0).text("tttttttttttt").number(1u).number(uint64_t{1}).number(uint16_t{0});
     },
     k_corrupt, "tensor type"},
    {"CutOffset",
     [](GgufImage& i) {
       i.header(3, 1, 0).text("tttttttttttt").number(1u).number(uint64_t{1}).number(0u).number(0u);
     },
     k_corrupt, "tensor offset"},
    {"RemovedType", one_tensor({32}, 4, 0, 64), k_unsupported, "tensor type 4"},
    {"UnsupportedQ2K", one_tensor({256}, 10, 0, 256), k_unsupported, "tensor type 10"},
    {"UnknownTensorType", one_tensor({256}, 4096, 0, 256), k_unsupported, "tensor type 4096"},
    {"RowOfHalfABlock", one_tensor({16, 2}, k_q4_1, 0, 64), k_corrupt, "block of 32"},
    {"RowOfHalfASuperBlock", one_tensor({128, 2}, k_q4_k, 0, 256), k_corrupt, "block of 256"},
    {"MisalignedOffset", one_tensor({1}, k_f32, 4, 64), k_corrupt, "alignment"},
    {"OffsetAtTheEnd", one_tensor({1}, k_f32, 64, 64), k_corrupt, "ends after the file"},
    {"OffsetAfterTheEnd", one_tensor({1}, k_f32, 96, 64), k_corrupt, "ends after the file"},
    {"HugeOffset", one_tensor({1}, k_f32, k_huge - 31, 64), k_corrupt, "ends after the file"},
    {"OffsetThatWraps", one_tensor({16}, k_f32, k_huge - 63, 64), k_corrupt, "ends after the file"},
    {"DataOneByteShort", one_tensor({16}, k_f32, 0, 63), k_corrupt, "ends after the file"},
    {"NoDataAtAll", [](GgufImage& i) { i.header(3, 1, 0).tensor("t", {1}, k_f32, 0); }, k_corrupt,
     "before its tensor data"},
    {"SameOffsetTwice",
     [](GgufImage& i) {
       i.header(3, 2, 0).tensor("a", {1}, k_f32, 0).tensor("b", {1}, k_f32, 0).pad(32).zeros(64);
     },
     k_corrupt, "overlap"},
    {"OverlapOfOneBlock",
     [](GgufImage& i) {
       i.header(3, 2, 0).tensor("a", {1}, k_f32, 32).tensor("b", {9}, k_f32, 0).pad(32).zeros(96);
     },
     k_corrupt, "'b' and 'a' overlap"},
};

INSTANTIATE_TEST_SUITE_P(Header, HostileGguf, testing::ValuesIn(k_header_cases), case_name);
INSTANTIATE_TEST_SUITE_P(Metadata, HostileGguf, testing::ValuesIn(k_metadata_cases), case_name);
INSTANTIATE_TEST_SUITE_P(Array, HostileGguf, testing::ValuesIn(k_array_cases), case_name);
INSTANTIATE_TEST_SUITE_P(Alignment, HostileGguf, testing::ValuesIn(k_alignment_cases), case_name);
INSTANTIATE_TEST_SUITE_P(Tensor, HostileGguf, testing::ValuesIn(k_tensor_cases), case_name);

std::vector<std::byte> valid_image() {
  GgufImage image;
  image.header(3, 2, 4)
      .entry("general.alignment", GgufType::u32, 32u)
      .entry("text", "words")
      .array("names", GgufType::string, 2)
      .text("a")
      .text("bc")
      .array("ids", GgufType::i32, 2)
      .number(1)
      .number(2)
      .tensor("m", {32, 2}, k_q4_1, 0)
      .tensor("v", {4}, k_f32, 64)
      .pad(32)
      .zeros(64 + 16);
  return image.bytes();
}

TEST(HostileGgufSweep, EveryTruncationIsRefused) {
  const auto whole = valid_image();
  ASSERT_TRUE(GgufFile::parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<long>(size));
    EXPECT_FALSE(GgufFile::parse(cut)) << size << " of " << whole.size() << " bytes";
  }
}

/// Touches all that a parsed file hands out.
size_t read_everything(const GgufFile& file) {
  size_t sum = 0;
  for (const GgufEntry& entry : file.metadata()) {
    for (const std::string_view text : entry.value.strings) sum += text.size();
    if (const auto ids = file.get_i32_array(entry.key)) sum += ids->size();
  }
  for (const GgufTensor& tensor : file.tensors()) {
    for (const std::byte b : tensor.data) sum += std::to_integer<size_t>(b);
  }
  return sum;
}

TEST(HostileGgufSweep, NoChangedByteLeadsOutsideTheImage) {
  const auto whole = valid_image();
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint32_t value : {0x00u, 0x01u, 0x7Fu, 0x80u, 0xFFu}) {
      auto changed = whole;
      changed[at] = static_cast<std::byte>(value);
      const auto file = GgufFile::parse(changed);
      if (file) read_everything(*file);
    }
  }
}

TEST(HostileGgufSweep, NoRandomDamageLeadsOutsideTheImage) {
  constexpr uint64_t k_seed = 20'261'121;
  SCOPED_TRACE("seed " + std::to_string(k_seed));
  Random random(k_seed);
  const auto whole = valid_image();
  for (int run = 0; run < 5'000; ++run) {
    auto changed = whole;
    for (uint32_t n = 1 + random.below(6); n > 0; --n) {
      changed[random.below(static_cast<uint32_t>(changed.size()))] =
          static_cast<std::byte>(random.next_u32());
    }
    const auto file = GgufFile::parse(changed);
    if (file) read_everything(*file);
  }
}

}  // namespace
}  // namespace outrider::model
