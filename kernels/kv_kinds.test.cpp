#include "kernels/kv_kinds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::kernels {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(KvKinds, AreOneWordForBothOrOneEach) {
  const auto both = parse_kv_kinds("q8_0");
  ASSERT_TRUE(both);
  EXPECT_EQ(both->k, KvKind::q8_0);
  EXPECT_EQ(both->v, KvKind::q8_0);
  const auto each = parse_kv_kinds("k=bf16,v=q3");
  ASSERT_TRUE(each);
  EXPECT_EQ(each->k, KvKind::bf16);
  EXPECT_EQ(each->v, KvKind::q3);
}

TEST(KvKinds, RefuseOtherWordsAndListTheRightOnes) {
  for (const char* text : {"", "int8", "k=q8_0", "k=q8_0,q4_0", "v=q8_0,k=q4_0", "k=,v=fp16",
                           "k=fp16,v=fp16,", "fp16,fp16"}) {
    const auto kinds = parse_kv_kinds(text);
    ASSERT_FALSE(kinds) << text;
    EXPECT_THAT(kinds.error().message, AllOf(HasSubstr("fp32"), HasSubstr("nf4"))) << text;
  }
}

}  // namespace
}  // namespace outrider::kernels
