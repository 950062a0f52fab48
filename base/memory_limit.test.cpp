#include "base/memory_limit.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/control_groups.test.hpp"

namespace outrider {
namespace {

/// Of groups of its own.
struct MemoryGroups : testing_support::ControlGroups {
  std::optional<uint64_t> limit(const std::string& proc_self_cgroup) const {
    return memory_limit(of(proc_self_cgroup, "memory"));
  }
};

TEST(MemoryLimit, TheLeastOfAGroupAndThoseAboveItCounts) {
  MemoryGroups groups;
  groups.write("/a/memory.max", "3000\n");
  groups.write("/a/b/memory.max", "5000\n");
  groups.write("/a/c/memory.max", "1000\n");
  groups.write("/a/b/d/memory.max", "max\n");
  EXPECT_EQ(groups.limit("12:cpu:/a/c\n0::/a/b/d\n"), 3000u);
  EXPECT_EQ(groups.limit("0::/a/c\n"), 1000u);
  EXPECT_EQ(groups.limit("0::/\n"), std::nullopt);
  EXPECT_EQ(groups.limit(""), std::nullopt);
}

TEST(MemoryLimit, TheFirstVersionHasAFileOfItsOwn) {
  MemoryGroups groups;
  groups.write("/memory/pod/memory.limit_in_bytes", "7000\n");
  groups.write("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(groups.limit("3:memory:/pod/container\n"), 7000u);
  EXPECT_EQ(groups.limit("3:cpu,cpuacct:/pod\n"), 9223372036854771712u);
}

TEST(MemoryLimit, AProcessHasNoMoreThanTheMachine) {
  const uint64_t machine = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                           static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  EXPECT_GT(usable_memory(), 0u);
  EXPECT_LE(usable_memory(), machine);
}

}  // namespace
}  // namespace outrider
