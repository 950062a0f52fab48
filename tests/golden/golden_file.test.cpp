#include "tests/golden/golden_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::golden {
namespace {

using testing::ElementsAre;

std::string text(const std::string& nll, int format = 1) {
  return R"({"format": )" + std::to_string(format) + R"(, "model": "m", "sha256": "ab",
    "windows": [{"name": "w", "ids": [1, 2, 3], "nll": )" +
         nll + R"(, "top1": [2, 4], "gap": [0.5, 0.25],
      "probes": [{"position": 1, "ids": [4, 3], "logprobs": [-0.5, -1.5]}]}],
    "greedy": [{"name": "p", "prompt": [1], "ids": [2], "logprobs": [-1], "gap": [0.5]}]})";
}

TEST(GoldenFile, HoldsWhatWasWritten) {
  const auto file = parse_golden(text("[1.5, 2.5]"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->model, "m");
  ASSERT_EQ(file->windows.size(), 1u);
  EXPECT_THAT(file->windows[0].nll, ElementsAre(1.5f, 2.5f));
  EXPECT_THAT(file->windows[0].probes[0].ids, ElementsAre(4, 3));
  EXPECT_THAT(file->greedy[0].prompt, ElementsAre(1));
}

TEST(GoldenFile, ArraysOfDifferentLengthsAreRefused) {
  EXPECT_FALSE(parse_golden(text("[1.5]")).ok());
  EXPECT_FALSE(parse_golden(text("[]")).ok());
}

TEST(GoldenFile, AnotherFormatOrShapeIsRefused) {
  EXPECT_FALSE(parse_golden(text("[1.5, 2.5]", 2)).ok());
  EXPECT_FALSE(parse_golden(text("\"x\"")).ok());
  EXPECT_FALSE(parse_golden("{").ok());
  EXPECT_FALSE(parse_golden("{}").ok());
}

TEST(GoldenFile, EveryCommittedFileReads) {
  for (const std::string name :
       {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "tiny-llama", "tiny-qwen2"}) {
    const auto file = read_golden("tests/golden/" + name + ".json");
    ASSERT_TRUE(file.ok()) << name << ": " << file.error().message;
    EXPECT_EQ(file->model, name);
    EXPECT_EQ(file->sha256.size(), 64u);
    EXPECT_EQ(file->greedy.size(), 3u);
  }
}

}  // namespace
}  // namespace outrider::golden
