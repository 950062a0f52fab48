#include "tests/fuzz/mutate.hpp"

#include <gtest/gtest.h>

#include <set>

namespace outrider::fuzz {
namespace {

TEST(Mutate, GivesTheSameInputForTheSameSeed) {
  const std::vector<Input> corpus = {{1, 2, 3, 4, 5}, {}, Input(1000, 7)};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random first(seed);
    Random second(seed);
    EXPECT_EQ(mutate(corpus, first), mutate(corpus, second)) << "seed " << seed;
  }
}

TEST(Mutate, GivesManyDifferentInputs) {
  const std::vector<Input> corpus = {Input(64, 0)};
  std::set<Input> seen;
  Random random(5);
  for (int i = 0; i < 1000; ++i) seen.insert(mutate(corpus, random));
  EXPECT_GT(seen.size(), 900u);
}

TEST(Mutate, WorksWithoutACorpusAndWithEmptyInputs) {
  Random random(6);
  const std::vector<Input> empty_input = {{}};
  for (int i = 0; i < 1000; ++i) {
    mutate({}, random);
    mutate(empty_input, random);
  }
}

TEST(Mutate, NeverGrowsBeyondItsBound) {
  const std::vector<Input> corpus = {Input(input_bytes_max, 1)};
  Random random(7);
  for (int i = 0; i < 200; ++i) EXPECT_LE(mutate(corpus, random).size(), input_bytes_max);
}

}  // namespace
}  // namespace outrider::fuzz
