#include "tools/origins.hpp"

#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

TEST(Origins, AreSchemesWithHostsOrAWord) {
  for (const char* good :
       {"*", "off", "https://my.page", "http://localhost:3000", "https://a.b, http://10.0.0.1:80",
        "http://[::1]:8080", "http://[::1]", "chrome-extension://abcdef"}) {
    EXPECT_TRUE(is_origins(good)) << good;
  }
}

TEST(Origins, RefuseWhatNoBrowserSends) {
  for (const char* bad :
       {"", "my.page", "https://", "://my.page", "https://my.page/", "https://my.page/app",
        "https://my.page:0", "https://my.page:x", "https://my.page:70000", "https://my page",
        "https://a.b,", "https://a.b,,https://c.d", "https://a.b, *", "off, https://a.b", "null",
        "1http://a.b", "https://a:b:80", "https://user@a.b"}) {
    EXPECT_FALSE(is_origins(bad)) << bad;
  }
}

}  // namespace
}  // namespace outrider::tools
