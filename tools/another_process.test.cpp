#include "tools/another_process.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

namespace outrider::tools {
namespace {

TEST(AnotherProcess, TellsItsExitCodeAndWhatItPrinted) {
  ::testing::internal::CaptureStdout();
  std::cout << "before, ";
  EXPECT_EQ(in_another_process([] {
              std::cout << "in it, ";
              return 3;
            }),
            3);
  std::cout << "behind";
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "before, in it, behind");
}

TEST(AnotherProcess, ThatASignalEndedIsNone) {
  for (const int signal : {SIGABRT, SIGKILL}) {
    EXPECT_EQ(in_another_process([&] {
                std::signal(signal, SIG_DFL);
                return std::raise(signal);
              }),
              std::nullopt);
  }
}

}  // namespace
}  // namespace outrider::tools
