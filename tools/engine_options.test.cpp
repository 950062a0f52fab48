#include "tools/engine_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ContextWarning, SaysBothFiguresWhenTheMemoryCutsTheContext) {
  Settings settings;
  ASSERT_TRUE(settings.set("kv-memory-mb", "1", "flag").ok());
  EXPECT_THAT(context_warning(settings, 720, 8192),
              AllOf(HasSubstr("kv-memory-mb 1"), HasSubstr("720"), HasSubstr("8192")));
  EXPECT_EQ(context_warning(settings, 8192, 8192), "");
  ASSERT_TRUE(settings.set("ctx", "720", "flag").ok());
  EXPECT_EQ(context_warning(settings, 720, 8192), "") << "it was asked for";
}

}  // namespace
}  // namespace outrider::tools
