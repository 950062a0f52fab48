#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace outrider::gateway {

/// The soft limit of open descriptors while it lives, and the old one afterwards.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t soft) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit changed = before_;
    changed.rlim_cur = soft;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &changed), 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

  rlim_t hard() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

}  // namespace outrider::gateway
