#include "kernels/kv_kind_flags.hpp"

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
  for (const char* text : {"k=bf16,v=q3", "v=q3,k=bf16"}) {
    const auto each = parse_kv_kinds(text);
    ASSERT_TRUE(each) << text;
    EXPECT_EQ(each->k, KvKind::bf16);
    EXPECT_EQ(each->v, KvKind::q3);
  }
}

TEST(KvKinds, MayTurnTheKeys) {
  EXPECT_EQ(*parse_kv_kinds("q4_0+hadamard"), (KvKinds{KvKind::q4_0, KvKind::q4_0, true}));
  EXPECT_EQ(*parse_kv_kinds("k=q8_0+hadamard,v=nf4"), (KvKinds{KvKind::q8_0, KvKind::nf4, true}));
  EXPECT_NE(*parse_kv_kinds("q4_0+hadamard"), *parse_kv_kinds("q4_0"));
}

TEST(KvKinds, WithTurnedKeysSuitHeadsOfPowersOfTwo) {
  for (const uint32_t head_dim : {2u, 16u, 64u, 1024u}) {
    EXPECT_TRUE(check_kv_kinds(*parse_kv_kinds("nf4+hadamard"), head_dim));
  }
  EXPECT_TRUE(check_kv_kinds(KvKinds{}, 80));
  const auto refused = check_kv_kinds(*parse_kv_kinds("nf4+hadamard"), 80);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "kv-kind");
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("nf4+hadamard"), HasSubstr("80")));
}

TEST(KvKinds, RefuseOtherWordsAndListTheRightOnes) {
  for (const char* text :
       {"", "int8", "k=q8_0", "k=q8_0,q4_0", "v=q8_0,v=q4_0", "k=,v=fp16", "v=q8_0",
        "k=fp16,v=fp16,", "fp16,fp16", "hadamard", "+hadamard", "q4_0+", "q4_0+hadamard+hadamard",
        "k=q4_0,v=q4_0+hadamard", "q4_0+Hadamard"}) {
    const auto kinds = parse_kv_kinds(text);
    ASSERT_FALSE(kinds) << text;
    EXPECT_THAT(kinds.error().message, AllOf(HasSubstr("fp32"), HasSubstr("nf4"))) << text;
  }
}

TEST(KvKinds, SayWhatIsWrongWithANameThatIsNearlyRight) {
  EXPECT_THAT(parse_kv_kinds("auto+hadamard").error().message, HasSubstr("auto stands alone"));
  EXPECT_THAT(parse_kv_kinds("k=q4_0,v=q4_0+hadamard").error().message,
              HasSubstr("values are not turned"));
  for (const char* text : {"k=q8_0", "k=q8_0,k=q4_0"}) {
    EXPECT_THAT(parse_kv_kinds(text).error().message, HasSubstr("keys and values need one each"));
  }
}

TEST(KvKinds, AreWrittenAsTheyAreRead) {
  for (const char* text : {"fp16", "k=q8_0,v=q4_0", "nf4+hadamard", "k=q8_0+hadamard,v=q4_0"}) {
    EXPECT_EQ(kv_kinds_text(*parse_kv_kinds(text)), text);
  }
  EXPECT_EQ(kv_kinds_text(*parse_kv_kinds("k=q3,v=q3")), "q3");
  EXPECT_EQ(kv_kinds_text(*parse_kv_kinds("k=q3+hadamard,v=q3")), "q3+hadamard");
}

TEST(KvKinds, MayHaveBlanksAroundCommasAndEqualsSigns) {
  const KvKinds apart{KvKind::q8_0, KvKind::q4_0};
  for (const char* text : {"k=q8_0, v=q4_0", "v=q4_0 ,k=q8_0", " k=q8_0 , v=q4_0 ",
                           " k = q8_0 , v\t= q4_0", "k =q8_0,v= q4_0"}) {
    const auto kinds = parse_kv_kinds(text);
    ASSERT_TRUE(kinds) << text;
    EXPECT_EQ(*kinds, apart) << text;
  }
  for (const char* text : {"k=q8_0, ", ", v=q4_0", "k=q8_0 v=q4_0", "k=q8_0,v=q4_0,", "q8_0,q4_0",
                           "k = ,v = q3", "= q8_0"}) {
    EXPECT_FALSE(parse_kv_kinds(text)) << text;
  }
}

TEST(KvKinds, OfAListStandThereOnce) {
  for (const char* text :
       {"  q8_0 k=q8_0,v=q4_0  fp16 v=q3,k=nf4 ", "q8_0,k=q8_0,v=q4_0,fp16,v=q3,k=nf4",
        "q8_0, v=q4_0, k=q8_0, fp16 , k=nf4 v=q3",
        "q8_0 k = q8_0 , v = q4_0 fp16, v = q3 k =nf4"}) {
    const auto list = parse_kv_kinds_list(text);
    ASSERT_TRUE(list) << text;
    EXPECT_THAT(*list, testing::ElementsAre(
                           KvKinds{KvKind::q8_0, KvKind::q8_0}, KvKinds{KvKind::q8_0, KvKind::q4_0},
                           KvKinds{KvKind::fp16, KvKind::fp16}, KvKinds{KvKind::nf4, KvKind::q3}));
  }
  for (const char* text : {"", "  ", ",", "q8_0 q9", "q8_0,", ",q8_0", "q8_0,,q4_0", "q8_0, ,q4_0",
                           "k=q8_0", "k=q8_0,q3,v=q4_0", "k=q8_0,k=q3,v=q4_0", "q3 k=q3,v=q3"}) {
    EXPECT_FALSE(parse_kv_kinds_list(text)) << text;
  }
}

}  // namespace
}  // namespace outrider::kernels
