#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/philox.hpp"
#include "model/fair_share.hpp"
#include "model/scheduler.hpp"

/// Tenants against each other over many steps, with memory enough for all.
namespace outrider::model {
namespace {

struct Job {
  std::string tenant;
  SequenceView view;
  uint32_t end = 0;
};

struct Shop {
  void submit(const std::string& tenant, uint32_t prompt, uint32_t output) {
    Job job{tenant, {.arrival = ++arrivals, .length = prompt}, prompt + output};
    jobs.push_back(std::move(job));
  }

  void step() {
    shares.begin_step();
    for (const Job& job : jobs) {
      const SequenceView& view = job.view;
      shares.want(job.tenant, !view.running || view.length - view.computed > 1);
    }
    shares.settle();
    std::vector<SequenceView> views;
    for (Job& job : jobs) {
      job.view.tenant = shares.of(job.tenant).number;
      job.view.served = shares.of(job.tenant).served;
      views.push_back(job.view);
    }
    const StepPlan plan = plan_step(views, budget);
    for (const uint32_t s : plan.preempt) {
      jobs[s].view.running = false;
      jobs[s].view.computed = 0;
      ++preemptions;
    }
    for (const uint32_t s : plan.admit) jobs[s].view.running = true;
    for (const auto& [s, rows] : plan.rows) {
      shares.charge(jobs[s].tenant, rows);
      jobs[s].view.computed += rows;
      if (jobs[s].view.computed == jobs[s].view.length) ++jobs[s].view.length;
    }
    std::erase_if(jobs, [](const Job& job) { return job.view.length == job.end; });
    ++steps;
  }

  size_t open(const std::string& tenant) const {
    return static_cast<size_t>(std::count_if(jobs.begin(), jobs.end(),
                                             [&](const Job& job) { return job.tenant == tenant; }));
  }

  StepBudget budget = {.batch_tokens = 64, .sequences = 8, .blocks_free = 1u << 20};
  FairShare shares;
  std::vector<Job> jobs;
  uint64_t arrivals = 0;
  uint64_t steps = 0;
  uint64_t preemptions = 0;
};

TEST(Fairness, OneShortRequestDoesNotWaitForAFloodOfAnotherTenant) {
  Shop shop;
  for (int i = 0; i < 300; ++i) shop.submit("alice", 4, 60);
  for (int i = 0; i < 20; ++i) shop.step();
  shop.submit("bob", 4, 4);
  const uint64_t before = shop.steps;
  while (shop.open("bob") > 0) shop.step();
  EXPECT_LE(shop.steps - before, 5u) << "its prompt and its four tokens";
  EXPECT_GT(shop.open("alice"), 290u);
  EXPECT_EQ(shop.preemptions, 1u);
}

TEST(Fairness, BackloggedTenantsAreServedAlikeWhateverTheyAskFor) {
  Shop shop;
  Random random(7);
  const auto refill = [&] {
    while (shop.open("many short") < 40) shop.submit("many short", 3, 1 + random.below(9));
    while (shop.open("few long") < 9) shop.submit("few long", 400, 100);
    while (shop.open("wide") < 20) shop.submit("wide", 60, 20);
  };
  for (int i = 0; i < 5000; ++i) {
    refill();
    shop.step();
  }
  const auto served = [&](const char* tenant) {
    return static_cast<double>(shop.shares.of(tenant).served);
  };
  const auto [least, most] =
      std::minmax({served("many short"), served("few long"), served("wide")});
  EXPECT_LE(most - least, 0.02 * most) << least << " to " << most;
}

TEST(Fairness, ATenantIsNotStarvedByManyThatComeAndGo) {
  Shop shop;
  for (int i = 0; i < 10; ++i) shop.submit("steady", 50, 50);
  uint64_t visitors = 0;
  while (shop.open("steady") > 0) {
    while (shop.jobs.size() < 30) shop.submit("visitor " + std::to_string(visitors++), 10, 10);
    shop.step();
    ASSERT_LT(shop.steps, 20'000u);
  }
  EXPECT_GT(visitors, 300u);
  EXPECT_LT(shop.shares.accounts(), 100u) << "who left is forgotten";
}

}  // namespace
}  // namespace outrider::model
