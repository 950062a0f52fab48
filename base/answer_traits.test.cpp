#include "base/answer_traits.hpp"

#include <gtest/gtest.h>

namespace outrider {
namespace {

TEST(AnswerTraits, DifferencesNameWhatDiffersAndNothingElse) {
  const AnswerTraits wanted = {{"weights", std::string(64, 'a')}, {"ctx", "8192"}, {"window", "0"}};
  EXPECT_EQ(differences(wanted, wanted), "");
  AnswerTraits own = wanted;
  own[1].second = "4096";
  EXPECT_EQ(differences(own, wanted), "ctx 4096, not 8192");
  own[0].second = std::string(64, 'b');
  EXPECT_EQ(differences(own, wanted),
            "weights bbbbbbbbbbbb…, not aaaaaaaaaaaa…; ctx 4096, not 8192");
}

TEST(AnswerTraits, ATraitThatOnlyOneHasIsADifference) {
  EXPECT_EQ(differences({{"ctx", "1"}}, {{"ctx", "1"}, {"window", "8"}}), "window none, not 8");
  EXPECT_EQ(differences({{"ctx", "1"}, {"window", "8"}}, {{"ctx", "1"}}), "window 8, not none");
  EXPECT_EQ(differences(named_in({{"ctx", "1"}, {"window", "8"}}, {{"ctx", "2"}}), {{"ctx", "2"}}),
            "ctx 1, not 2");
}

}  // namespace
}  // namespace outrider
