#include "kernels/cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

namespace outrider::kernels {
namespace {

TEST(ThreadPoolTest, EachItemRunsOnce) {
  for (uint32_t threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const size_t count : {0, 1, 2, 3, 7, 100, 1000}) {
      std::vector<int> runs(count, 0);
      pool.parallel_for(count, [&](size_t i) { ++runs[i]; });
      EXPECT_EQ(runs, std::vector<int>(count, 1)) << threads << " threads, " << count << " items";
    }
  }
}

/// Short jobs one after another: each must see what the one before wrote, without atomics.
TEST(ThreadPoolTest, JobsSeeTheResultsOfEarlierJobs) {
  ThreadPool pool(3);
  std::vector<uint64_t> values(5, 1);
  for (int job = 0; job < 20'000; ++job) {
    const size_t count = 2 + static_cast<size_t>(job) % 4;
    pool.parallel_for(count, [&](size_t i) { values[i] = values[i] * 3 + values[i] % 7; });
    if (job % 1000 == 0) {
      const uint64_t sum = std::accumulate(values.begin(), values.end(), uint64_t{0});
      pool.parallel_for(values.size(), [&](size_t i) { values[i] += sum; });
    }
  }
  EXPECT_NE(values[0], values[4]);
}

TEST(ThreadPoolTest, SleepingWorkersWakeForTheNextJob) {
  ThreadPool pool(4);
  for (int turn = 0; turn < 20; ++turn) {
    // Long enough on this thread that the workers go to sleep.
    uint64_t state = 1;
    for (int i = 0; i < 300'000; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
    std::vector<uint64_t> out(64);
    pool.parallel_for(out.size(), [&](size_t i) { out[i] = state + i; });
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], state + i);
  }
}

/// Each item waits for all the others: a worker that misses its wake-up would hang this test.
TEST(ThreadPoolTest, AllThreadsWorkAtOnceWhenEachHasAnItem) {
  for (uint32_t threads = 2; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    for (int job = 0; job < 300; ++job) {
      std::atomic<uint32_t> present{0};
      pool.parallel_for(threads, [&](size_t) {
        present.fetch_add(1);
        while (present.load() < threads) std::this_thread::yield();
      });
      ASSERT_EQ(present.load(), threads);
    }
  }
}

TEST(ThreadPoolTest, ThreadsMayChangeBetweenJobs) {
  ThreadPool pool(1);
  std::vector<int> runs(50, 0);
  int jobs = 0;
  for (const uint32_t threads : {2u, 5u, 1u, 3u, 3u}) {
    pool.set_threads(threads);
    EXPECT_EQ(pool.threads(), threads);
    pool.parallel_for(runs.size(), [&](size_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(50, ++jobs));
  }
}

/// The CPUs that the calling thread may run on.
std::vector<uint32_t> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<uint32_t> cpus;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(ThreadPoolTest, ThreadsStayOnTheirCpus) {
  // In a thread of its own: what is bound stays bound.
  std::thread([] {
    const std::vector<uint32_t> all = own_cpus();
    const std::vector<uint32_t> cpus = {all.back(), all.front(), 100'000};
    ThreadPool pool(4, cpus);
    std::vector<std::vector<uint32_t>> seen(4);
    std::atomic<uint32_t> present{0};
    pool.parallel_for(4, [&](size_t i) {
      seen[i] = own_cpus();
      present.fetch_add(1);
      while (present.load() < 4) std::this_thread::yield();
    });
    EXPECT_EQ(own_cpus(), std::vector<uint32_t>{cpus[0]});
    // One without a CPU and one whose CPU there is not run anywhere.
    std::vector<std::vector<uint32_t>> expected = {{cpus[0]}, {cpus[1]}, all, all};
    std::sort(seen.begin(), seen.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(seen, expected);
  }).join();
}

}  // namespace
}  // namespace outrider::kernels
