#include "tools/thread_room.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iostream>

namespace outrider::tools {
namespace {

TEST(ThreadRoom, ThereIsSomeForThoseWhoServe) {
  const auto room = check_thread_room(serving_threads());
  EXPECT_TRUE(room.ok()) << room.error().message;
}

/// Limits are of a user, and do not hold for root.
[[noreturn]] void check_as_limited_user() {
  if (::getuid() == 0 && ::setuid(65'534) != 0) ::_exit(2);
  const rlimit none{1, 1};
  if (::setrlimit(RLIMIT_NPROC, &none) != 0) ::_exit(2);
  const auto room = check_thread_room(8);
  std::cerr << (room.ok() ? "all" : room.error().message) << '\n';
  ::_exit(room.ok() ? 0 : 1);
}

TEST(ThreadRoomDeathTest, WhoMayHaveNoMoreIsToldSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(check_as_limited_user(), testing::ExitedWithCode(1), "of 8 threads.*ulimit -u");
}

}  // namespace
}  // namespace outrider::tools
