#include "base/cpu_count.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/control_groups.test.hpp"

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

/// Of groups of its own.
struct Groups : testing_support::ControlGroups {
  std::optional<uint32_t> quota(const std::string& proc_self_cgroup) const {
    return cgroup_quota(of(proc_self_cgroup, "cpu"));
  }
};

TEST(CpuCount, TheLeastQuotaOfAGroupAndThoseAboveItCounts) {
  Groups groups;
  groups.write("/a/cpu.max", "300000 100000\n");
  groups.write("/a/b/cpu.max", "500000 100000\n");
  groups.write("/a/c/cpu.max", "100000 100000\n");
  groups.write("/a/b/d/cpu.max", "max 100000\n");
  EXPECT_EQ(groups.quota("12:memory:/a/c\n0::/a/b/d\n"), 3u);
  EXPECT_EQ(groups.quota("0::/a/c\n"), 1u);
  EXPECT_EQ(groups.quota("0::/\n"), std::nullopt);
  EXPECT_EQ(groups.quota(""), std::nullopt);
  EXPECT_EQ(groups.quota("nonsense\n1:\n0:cpu\n3:cpu:a\n"), std::nullopt);
}

TEST(CpuCount, QuotasOfVersionOneCountAsWell) {
  Groups groups;
  groups.write("/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "150000\n");
  groups.write("/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  groups.write("/cpu,cpuacct/docker/cpu.cfs_quota_us", "-1\n");
  groups.write("/cpu,cpuacct/docker/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(groups.quota("9:cpuset:/\n4:cpu,cpuacct:/docker/x\n"), 2u);
  EXPECT_EQ(groups.quota("4:cpu,cpuacct:/docker\n"), std::nullopt);
  EXPECT_EQ(groups.quota("9:cpuset:/docker/x\n"), std::nullopt);
  groups.write("/cpu/cpu.cfs_quota_us", "400000\n");
  groups.write("/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(groups.quota("4:cpu,cpuacct:/not/seen/from/here\n"), 4u);
  EXPECT_EQ(groups.quota("4:cpu,cpuacct:/docker/x\n"), 2u);
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
