#include "kvstore/record.hpp"

#include <gtest/gtest.h>

#include "base/limits.hpp"
#include "kvstore/fixture.test.hpp"

namespace outrider::kvstore {
namespace {

using testing_support::make_block;
using testing_support::same_content;

TEST(Record, ABlockComesBackAsItWas) {
  Block block = make_block(1, 3, 10'000);
  block.tensors.push_back({"chunk means", 1, {}});
  block.tensors.push_back({"k_geo", 7, std::vector<std::byte>(7 * 13, std::byte{9})});
  const auto record = encode(block);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->size(), encoded_bytes(block));
  const auto view = decode(*record);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_TRUE(same_content(*view, block));
}

TEST(Record, EveryFlippedBitIsFound) {
  const Block block = make_block(2, 0, 256);
  auto record = *encode(block);
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    record[bit / 8] ^= std::byte(1 << (bit % 8));
    EXPECT_FALSE(decode(record)) << "bit " << bit;
    record[bit / 8] ^= std::byte(1 << (bit % 8));
  }
  EXPECT_TRUE(decode(record));
}

TEST(Record, EveryTruncationAndAnAppendedByteAreFound) {
  auto record = *encode(make_block(3, 0, 256));
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FALSE(decode(std::span(record).first(size))) << size;
  }
  record.push_back(std::byte{0});
  EXPECT_FALSE(decode(record));
}

TEST(Record, BlocksThatBreakARuleAreRefusedByField) {
  const auto field_of = [](const Block& block) {
    const auto record = encode(block);
    return record ? std::string("none") : record.error().field;
  };
  Block block = make_block(4, 0);
  block.tensors[0].layers = 0;
  EXPECT_EQ(field_of(block), "layers");
  block = make_block(4, 0);
  block.tensors[0].bytes = std::vector<std::byte>(block.tensors[0].bytes.size() - 1);
  EXPECT_EQ(field_of(block), "layers");
  block = make_block(4, 0);
  block.tensors[1].name = "k";
  EXPECT_EQ(field_of(block), "name");
  block.tensors[1].name = std::string(limits::kv_tensor_name_bytes_max + 1, 'x');
  EXPECT_EQ(field_of(block), "name");
  block = make_block(4, 0);
  block.tokens.clear();
  EXPECT_EQ(field_of(block), "tokens");
  block = make_block(4, 0);
  block.tensors.clear();
  EXPECT_EQ(field_of(block), "tensors");
}

TEST(Record, ATooLargeBlockIsRefusedWithBothNumbers) {
  Block block = make_block(5, 0);
  block.tensors[0] = {"k", 1, std::vector<std::byte>(limits::kv_record_bytes_max)};
  const auto record = encode(block);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, ErrorCode::too_large);
  EXPECT_NE(record.error().message.find(std::to_string(limits::kv_record_bytes_max)),
            std::string::npos);
}

TEST(IndexRow, ComesBackAndProvesItsId) {
  const Row row{1, 2, 3, 4, -5, 6, 7, 8, 9, 10, Place::pinned};
  const BlockId id = testing_support::block_id(1, 1);
  RowBytes bytes = encode_row(id, row);
  ASSERT_TRUE(decode_row(id, bytes));
  EXPECT_EQ(*decode_row(id, bytes), row);
  EXPECT_FALSE(decode_row(testing_support::block_id(1, 2), bytes)) << "another block's row";
  EXPECT_FALSE(decode_row(id, std::span(bytes).first(k_row_bytes - 1)));
  for (size_t bit = 0; bit < k_row_bytes * 8; ++bit) {
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
    EXPECT_FALSE(decode_row(id, bytes)) << "bit " << bit;
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
  }
}

}  // namespace
}  // namespace outrider::kvstore
