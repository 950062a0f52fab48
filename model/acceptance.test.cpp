#include "model/acceptance.hpp"

#include <gtest/gtest.h>

namespace outrider::model {
namespace {

TEST(Acceptance, IsWhatIsSaidOfItUntilItIsSeen) {
  EXPECT_FLOAT_EQ(Acceptance(0.9f).probability(HintSource::own_text, 200, 0.8f, 4), 0.8f);
}

TEST(Acceptance, FollowsWhatCameTrueInItsClass) {
  Acceptance acceptance(0.95f);
  for (int i = 0; i < 200; ++i) acceptance.count(HintSource::own_text, 200, i % 4 == 0);
  EXPECT_NEAR(acceptance.probability(HintSource::own_text, 210, 0.8f, 4), 0.3f, 0.08f);
  EXPECT_FLOAT_EQ(acceptance.probability(HintSource::own_text, 100, 0.4f, 4), 0.4f);
  EXPECT_FLOAT_EQ(acceptance.probability(HintSource::draft_model, 210, 0.8f, 4), 0.8f);
  for (int i = 0; i < 100; ++i) acceptance.count(HintSource::own_text, 200, true);
  EXPECT_GT(acceptance.probability(HintSource::own_text, 210, 0.8f, 4), 0.9f)
      << "what was long ago must not count";
}

TEST(Acceptance, EachConfidenceHasAClass) {
  Acceptance acceptance(0.95f);
  for (int confidence = 0; confidence < 256; ++confidence) {
    for (const auto source : {HintSource::own_text, HintSource::other}) {
      acceptance.count(source, static_cast<uint8_t>(confidence), true);
    }
  }
  EXPECT_GT(acceptance.probability(HintSource::other, 255, 0, 1), 0.9f);
}

}  // namespace
}  // namespace outrider::model
