#include "tools/number_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

TEST(NumberList, TakesBlanksAroundItsCommasAndNoEmptyEntry) {
  CLI::App app;
  std::vector<uint32_t> depths;
  add_number_list(app, "--depth", depths, IntegerRange{0, 9}, "");
  app.parse("--depth \"0, 7 ,9\"");
  EXPECT_THAT(depths, testing::ElementsAre(0, 7, 9));
  for (const char* bad : {"--depth 1,,2", "--depth 1,", "--depth 1,10"}) {
    EXPECT_THROW(app.parse(bad), CLI::ValidationError) << bad;
  }
}

}  // namespace
}  // namespace outrider::tools
