#include "tools/banner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(Banner, NamesTheAddressesThatAreListenedOn) {
  EXPECT_EQ(with_port("localhost:0", 4711), "localhost:4711");
  EXPECT_EQ(with_port("[::1]:0", 4711), "[::1]:4711");
  const std::string here = banner("tiny", "cpu", {"127.0.0.1:8080", "127.0.0.1:8081", false});
  EXPECT_THAT(here, HasSubstr("http://127.0.0.1:8080/v1    OpenAI wire\n"));
  EXPECT_THAT(here, HasSubstr("\n  127.0.0.1:8081              Cap'n Proto\n"));
  const std::string everywhere = banner("tiny", "cpu", {":8095", "", false});
  EXPECT_THAT(everywhere, HasSubstr("http://127.0.0.1:8095/v1    OpenAI wire, on all interfaces"));
  EXPECT_THAT(everywhere, Not(HasSubstr("Cap'n Proto")));
  EXPECT_THAT(banner("tiny", "cpu", {"10.1.2.3:80", "", false}), HasSubstr("http://10.1.2.3:80/"));
}

TEST(Banner, TheCommandIsGreedyAndCarriesAKeyWhereOneIsNeeded) {
  const std::string open = banner("tiny", "cpu", {"127.0.0.1:8080", "", false});
  EXPECT_THAT(open, HasSubstr("\"temperature\":0"));
  EXPECT_THAT(open, Not(HasSubstr("Authorization")));
  EXPECT_THAT(banner("tiny", "cpu", {"127.0.0.1:8080", "", true}),
              HasSubstr("Authorization: Bearer"));
}

TEST(Banner, WarnsOfPortsThatOthersReachWithoutKeys) {
  EXPECT_THAT(exposure_warnings({":80", "0.0.0.0:81", false}), SizeIs(2));
  EXPECT_THAT(exposure_warnings({"192.168.0.1:80", "127.0.0.1:81", false}), SizeIs(1));
  EXPECT_THAT(exposure_warnings({"localhost:80", "[::1]:81", false}), SizeIs(0));
  EXPECT_THAT(exposure_warnings({"127.0.0.1:80", "", false}), SizeIs(0));
  EXPECT_THAT(exposure_warnings({":80", ":81", true}), SizeIs(0));
}

}  // namespace
}  // namespace outrider::tools
