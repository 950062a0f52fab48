#include "base/cpu_count.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace outrider {
namespace {

TEST(CpuCount, AQuotaIsRoundedUpToWholeCpus) {
  EXPECT_EQ(quota_cpus("200000 100000\n"), 2u);
  EXPECT_EQ(quota_cpus("150000 100000"), 2u);
  EXPECT_EQ(quota_cpus("5000 100000"), 1u);
}

TEST(CpuCount, NoQuotaAndNonsenseAreNoLimit) {
  for (const char* text :
       {"", "max 100000", "max", "0 100000", "100000", "100000 0", "1 x", "-1 1"}) {
    EXPECT_EQ(quota_cpus(text), std::nullopt) << text;
  }
}

TEST(CpuCount, FindsTheUnifiedGroupAmongOthers) {
  EXPECT_EQ(cgroup_path("12:cpu:/old\n0::/kubepods/pod1\n"), "/kubepods/pod1");
  EXPECT_EQ(cgroup_path("0::/\n"), "/");
  EXPECT_EQ(cgroup_path("4:memory:/x\n"), "/");
}

TEST(CpuCount, FollowsTheAffinityMask) {
  const UsableCpus before = usable_cpus();
  EXPECT_GE(before.threads, 1u);
  EXPECT_LE(before.threads, before.order.cores);
  // In a thread of its own: the mask ends with it.
  std::thread([&before] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(before.order.cpus.front(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const UsableCpus single = usable_cpus();
    EXPECT_EQ(single.threads, 1u);
    EXPECT_EQ(single.order.cpus, std::vector<uint32_t>{before.order.cpus.front()});
  }).join();
}

}  // namespace
}  // namespace outrider
