#include "base/cpu_topology.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/cpu_count.hpp"

namespace outrider {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<uint32_t>;

Cpus first_cpus(uint32_t count) {
  Cpus cpus(count);
  std::iota(cpus.begin(), cpus.end(), 0u);
  return cpus;
}

/// A directory like /sys/devices/system that the test fills.
class SystemTree {
 public:
  SystemTree() { fs::create_directories(root_); }
  ~SystemTree() { fs::remove_all(root_); }
  SystemTree& file(const std::string& path, const std::string& text) {
    fs::create_directories((fs::path(root_) / path).parent_path());
    std::ofstream(fs::path(root_) / path) << text << '\n';
    return *this;
  }
  SystemTree& cpu(uint32_t number, const std::string& siblings, const std::string& cache = "") {
    const std::string directory = "cpu/cpu" + std::to_string(number) + '/';
    file(directory + "topology/thread_siblings_list", siblings);
    file(directory + "cache/index0/level", "1");
    file(directory + "cache/index0/shared_cpu_list", siblings);
    if (cache.empty()) return *this;
    file(directory + "cache/index3/level", "3");
    return file(directory + "cache/index3/shared_cpu_list", cache);
  }
  CpuOrder order(const Cpus& allowed) const {
    return order_cpus(read_cpu_topology(root_), allowed);
  }
  const std::string& root() const { return root_; }

 private:
  const std::string root_ = testing::TempDir() + "outrider_cpus_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(CpuTopology, ListsAreRangesAndNumbers) {
  EXPECT_EQ(parse_cpu_list("0-3,8\n"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("5,1,1-2"), (Cpus{1, 2, 5}));
  EXPECT_EQ(parse_cpu_list(""), Cpus{});
  for (const char* text : {"a", "1-", "-1", "3-1", "1,", ",1", "1 2", "0-99999", "4294967296"}) {
    EXPECT_EQ(parse_cpu_list(text), std::nullopt) << text;
  }
}

TEST(CpuTopology, SiblingsComeAfterAllCores) {
  SystemTree tree;
  tree.file("cpu/online", "0-7");
  for (uint32_t cpu = 0; cpu < 8; ++cpu) {
    const std::string core = std::to_string(cpu % 4);
    tree.cpu(cpu, core + ',' + std::to_string(cpu % 4 + 4), "0-7");
  }
  const CpuOrder order = tree.order(first_cpus(8));
  EXPECT_EQ(order.cpus, (Cpus{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(order.cores, 4u);
  EXPECT_EQ(order.caches, 1u);
  EXPECT_EQ(order.nodes, 1u);
  // One CPU of a core is all of it that is allowed.
  EXPECT_EQ(tree.order({2, 5, 6}).cpus, (Cpus{5, 2, 6}));
  EXPECT_EQ(tree.order({2, 5, 6}).cores, 2u);
}

TEST(CpuTopology, ACacheAndThenANodeIsFullBeforeTheNext) {
  SystemTree tree;
  tree.file("cpu/online", "0-7").file("node/online", "0-1");
  tree.file("node/node0/cpulist", "0,2,4,6").file("node/node1/cpulist", "1,3,5,7");
  for (const uint32_t cpu : {0u, 4u}) tree.cpu(cpu, std::to_string(cpu), "0,4");
  for (const uint32_t cpu : {2u, 6u}) tree.cpu(cpu, std::to_string(cpu), "2,6");
  for (const uint32_t cpu : {1u, 3u, 5u, 7u}) tree.cpu(cpu, std::to_string(cpu), "1,3,5,7");
  const CpuOrder order = tree.order(first_cpus(8));
  EXPECT_EQ(order.cpus, (Cpus{0, 4, 2, 6, 1, 3, 5, 7}));
  EXPECT_EQ(order.cores, 8u);
  EXPECT_EQ(order.caches, 3u);
  EXPECT_EQ(order.nodes, 2u);
}

TEST(CpuTopology, OfflineCpusAreNotThere) {
  SystemTree tree;
  tree.file("cpu/online", "0-1,3");
  for (uint32_t cpu = 0; cpu < 4; ++cpu) tree.cpu(cpu, std::to_string(cpu), "0-3");
  const auto places = read_cpu_topology(tree.root());
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[2], (CpuPlace{.cpu = 3, .core = 3, .cache = 0, .node = 0}));
}

/// Two fast cores with two CPUs each, four slow ones with one.
TEST(CpuTopology, SlowCoresCountAsCoresAndComeAfterFastOnes) {
  SystemTree tree;
  tree.file("cpu/online", "0-7");
  for (uint32_t cpu = 0; cpu < 4; ++cpu) tree.cpu(cpu, cpu < 2 ? "0-1" : "2-3", "0-7");
  for (uint32_t cpu = 4; cpu < 8; ++cpu) tree.cpu(cpu, std::to_string(cpu), "0-7");
  const CpuOrder order = tree.order(first_cpus(8));
  EXPECT_EQ(order.cpus, (Cpus{0, 2, 4, 5, 6, 7, 1, 3}));
  EXPECT_EQ(order.cores, 6u);
}

TEST(CpuTopology, WithoutFilesEachCpuIsACore) {
  SystemTree tree;
  EXPECT_TRUE(read_cpu_topology(tree.root()).empty());
  const CpuOrder unknown = tree.order({3, 1});
  EXPECT_EQ(unknown.cpus, (Cpus{1, 3}));
  EXPECT_EQ(unknown.cores, 2u);
  tree.file("cpu/online", "0-1").file("node/online", "0,1").file("node/node1/cpulist", "1");
  const CpuOrder bare = tree.order({0, 1});
  EXPECT_EQ(bare.cores, 2u);
  EXPECT_EQ(bare.nodes, 2u);
  EXPECT_EQ(bare.caches, 2u) << "a cache is its node's where nothing says otherwise";
  tree.file("cpu/online", "0-4294967295");
  EXPECT_TRUE(read_cpu_topology(tree.root()).empty());
}

TEST(CpuBinding, AutomaticBindsWhereDistancesDifferAndAllCoresAreTaken) {
  const CpuOrder near{.cpus = {0, 1, 2, 3}, .cores = 4, .caches = 1, .nodes = 1};
  const CpuOrder far{.cpus = {0, 2, 1, 3, 4, 5, 6, 7}, .cores = 4, .caches = 2, .nodes = 1};
  EXPECT_TRUE(plan_binding(CpuBinding::automatic, near, 4).cpus.empty());
  EXPECT_EQ(plan_binding(CpuBinding::automatic, far, 4).cpus, (Cpus{0, 2, 1, 3}));
  EXPECT_TRUE(plan_binding(CpuBinding::automatic, far, 3).cpus.empty());
  EXPECT_EQ(plan_binding(CpuBinding::on, far, 3).cpus, (Cpus{0, 2, 1}));
  EXPECT_EQ(plan_binding(CpuBinding::on, near, 1).cpus, (Cpus{0}));
  EXPECT_TRUE(plan_binding(CpuBinding::on, near, 5).cpus.empty());
  EXPECT_TRUE(plan_binding(CpuBinding::off, far, 4).cpus.empty());
  EXPECT_EQ(plan_binding(CpuBinding::on, near, 5).why, "off: more threads than 4 CPUs");
  EXPECT_EQ(plan_binding(CpuBinding::automatic, near, 4).why,
            "off: 1 memory node, 1 level-3 cache");
  EXPECT_EQ(plan_binding(CpuBinding::automatic, far, 3).why, "off: 3 threads on 4 cores");
}

TEST(CpuBinding, TryingLeavesTheThreadWhereItWas) {
  const UsableCpus usable = usable_cpus();
  EXPECT_TRUE(can_bind(usable.order.cpus));
  EXPECT_FALSE(can_bind(Cpus{usable.order.cpus.front(), 100'000}));
  EXPECT_EQ(usable_cpus().order.cpus, usable.order.cpus);
}

}  // namespace
}  // namespace outrider
