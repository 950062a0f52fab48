#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

/// Skips a test, by its name, on a machine without a GPU; bench/gpu_all says that there is one.
#define OUTRIDER_SKIP_WITHOUT_GPU(why)                                \
  do {                                                                \
    ASSERT_EQ(std::getenv("OUTRIDER_REQUIRE_GPU"), nullptr) << (why); \
    GTEST_SKIP() << (why);                                            \
  } while (false)
