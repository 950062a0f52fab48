#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "base/philox.hpp"
#include "model/fair_share.hpp"
#include "model/kv_cache.hpp"
#include "model/scheduler.hpp"

/// Random traffic through plan_step and a real block pool: what the planner promises must hold
/// whatever the sizes.
namespace outrider::model {
namespace {

constexpr uint64_t k_seeds = 25;

struct Job {
  KvSequence kv;
  SequenceView view;
  std::string tenant;
  uint32_t end = 0;          ///< Tokens at which it is done.
  uint32_t steps_first = 0;  ///< Steps in a row that it was first in order and got no row.
};

struct Traffic {
  explicit Traffic(uint64_t seed) : random(seed) {
    const uint32_t blocks = 2 + random.below(40);
    budget.batch_tokens = random.chance(0.3f) ? 1 + random.below(4) : 1 + random.below(200);
    budget.sequences = 1 + random.below(12);
    budget.chunk_min = 1 + random.below(40);
    const kernels::KvGeometry geometry = {.layers = 1, .kv_heads = 1, .head_dim = 1};
    cache = std::move(KvCache::create(kernels::make_ref_ops(), geometry, blocks)).value();
    remaining = 20 + random.below(60);
    tenants = 1 + random.below(4);
  }

  void arrive() {
    const uint32_t capacity = cache->pool().total() * 16;
    Job job{KvSequence(*cache), {}, {}, 0};
    job.view.arrival = ++arrivals;
    job.tenant = "t" + std::to_string(random.below(tenants));
    job.view.priority = static_cast<int32_t>(random.below(3)) - 1;
    job.view.slots = random.chance(0.2f) ? 1 + random.below(4) : 1;
    job.view.length =
        1 + random.below(random.chance(0.5f) ? std::min(20u, capacity - 1) : capacity - 1);
    job.end = std::min(capacity, job.view.length + 1 + random.below(40));
    jobs.push_back(std::move(job));
    --remaining;
  }

  std::vector<SequenceView> views() {
    std::vector<SequenceView> out;
    shares.begin_step();
    for (const Job& job : jobs) {
      const bool backlogged = !job.view.running || job.view.length - job.kv.length() > 1;
      if (!job.view.parked) shares.want(job.tenant, backlogged);
    }
    shares.settle();
    for (Job& job : jobs) {
      const FairShare::Account share = shares.of(job.tenant);
      job.view.tenant = share.number;
      job.view.served = share.served;
      job.view.computed = job.kv.length();
      job.view.blocks = static_cast<uint32_t>(job.kv.table().size());
      job.view.exclusive_blocks = job.kv.exclusive_blocks();
      job.view.shared_tail = job.kv.shared_tail();
      out.push_back(job.view);
    }
    budget.blocks_free = cache->pool().free();
    return out;
  }

  void execute(const StepPlan& plan) {
    for (const uint32_t s : plan.preempt) {
      ASSERT_TRUE(jobs[s].view.running);
      jobs[s].kv.reset();
      jobs[s].view.running = false;
    }
    for (const uint32_t s : plan.admit) {
      ASSERT_FALSE(jobs[s].view.running);
      jobs[s].view.running = true;
    }
    uint32_t rows = 0;
    uint32_t slots = 0;
    for (const auto& [s, count] : plan.rows) {
      ASSERT_TRUE(jobs[s].view.running && !jobs[s].view.parked);
      ASSERT_LE(jobs[s].kv.length() + count, jobs[s].view.length);
      ASSERT_TRUE(jobs[s].kv.append(count)) << "the plan promised blocks";
      shares.charge(jobs[s].tenant, count);
      rows += count;
      slots += std::min(jobs[s].view.slots, budget.sequences);
    }
    ASSERT_LE(rows, budget.batch_tokens);
    ASSERT_LE(slots, budget.sequences);
  }

  /// The naive model of the order: again and again, of the tenant that will have been served least
  /// by then, the most urgent sequence.
  std::vector<size_t> naive_order(const std::vector<SequenceView>& views) const {
    std::map<uint32_t, uint64_t> served;
    std::vector<size_t> left;
    std::vector<size_t> order;
    for (size_t i = 0; i < views.size(); ++i) {
      served[views[i].tenant] = views[i].served;
      if (!views[i].parked) left.push_back(i);
    }
    while (!left.empty()) {
      const auto next = std::min_element(left.begin(), left.end(), [&](size_t a, size_t b) {
        const auto key = [&](size_t i) {
          const SequenceView& v = views[i];
          return std::tuple(served[v.tenant], v.tenant, v.priority, v.arrival);
        };
        return key(a) < key(b);
      });
      served[views[*next].tenant] += views[*next].length - views[*next].computed;
      order.push_back(*next);
      left.erase(next);
    }
    return order;
  }

  /// Rows are in the naive order: decode rows, then all others.
  void check_order(const std::vector<SequenceView>& views, const StepPlan& plan) const {
    std::vector<uint32_t> expected;
    for (const bool decode : {true, false}) {
      for (const size_t i : naive_order(views)) {
        const bool decodes = views[i].running && views[i].length - views[i].computed == 1;
        if (decodes != decode) continue;
        for (const PlannedRows& r : plan.rows) {
          if (r.sequence == i) expected.push_back(r.sequence);
        }
      }
    }
    std::vector<uint32_t> planned;
    for (const PlannedRows& r : plan.rows) planned.push_back(r.sequence);
    ASSERT_EQ(planned, expected);
  }

  /// The first runnable one may go without rows in one plan only (rule 5).
  void check_progress(const std::vector<SequenceView>& views, const StepPlan& plan) {
    const std::vector<size_t> order = naive_order(views);
    const size_t first = order.empty() ? jobs.size() : order.front();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const bool got = std::any_of(plan.rows.begin(), plan.rows.end(),
                                   [&](const PlannedRows& r) { return r.sequence == i; });
      jobs[i].steps_first =
          i == first && !got && jobs[i].view.running ? jobs[i].steps_first + 1 : 0;
      ASSERT_LE(jobs[i].steps_first, 1u);
    }
    ASSERT_TRUE(first == jobs.size() || !plan.rows.empty() || !plan.preempt.empty());
  }

  /// Everything known is computed: one more token, a fork, or the end.
  void sample() {
    for (size_t i = 0; i < jobs.size(); ++i) {
      Job& job = jobs[i];
      if (!job.view.running || job.kv.length() < job.view.length) continue;
      for (uint32_t c = 1; c < job.view.slots; ++c) {
        Job child{job.kv.fork(), job.view, job.tenant, job.end, 0};
        child.view.arrival = ++arrivals;
        child.view.slots = 1;
        ++child.view.length;
        forked.push_back(std::move(child));
      }
      job.view.slots = 1;
      ++job.view.length;
    }
    std::erase_if(jobs, [](const Job& job) { return job.view.length >= job.end; });
    for (Job& child : forked) {
      if (child.view.length < child.end) jobs.push_back(std::move(child));
    }
    forked.clear();
  }

  Random random;
  StepBudget budget;
  std::unique_ptr<KvCache> cache;
  std::vector<Job> jobs;
  std::vector<Job> forked;
  uint64_t arrivals = 0;
  uint32_t remaining = 0;
  uint32_t tenants = 1;
  FairShare shares;
  uint32_t parkings = 0;
};

void run(uint64_t seed) {
  Traffic traffic(seed);
  uint64_t steps = 0;
  uint64_t rows = 0;
  while (traffic.remaining > 0 || !traffic.jobs.empty()) {
    if (traffic.remaining > 0 && traffic.random.chance(0.3f)) traffic.arrive();
    for (Job& job : traffic.jobs) {
      if (!traffic.random.chance(job.view.parked ? 0.2f : 0.02f)) continue;
      // Whoever is parked may lose its work: for ever so, and nobody would end.
      if (!job.view.parked && traffic.parkings++ >= 300) continue;
      job.view.parked ^= true;
    }
    const std::vector<SequenceView> views = traffic.views();
    const StepPlan plan = plan_step(views, traffic.budget);
    ASSERT_NO_FATAL_FAILURE(traffic.check_order(views, plan));
    ASSERT_NO_FATAL_FAILURE(traffic.execute(plan));
    ASSERT_NO_FATAL_FAILURE(traffic.check_progress(views, plan));
    for (const PlannedRows& r : plan.rows) rows += r.rows;
    traffic.sample();
    std::vector<const KvSequence*> sequences;
    for (const Job& job : traffic.jobs) sequences.push_back(&job.kv);
    traffic.cache->check_conservation(sequences);
    ASSERT_LT(++steps, 200'000u) << "starving after " << rows << " rows";
  }
  EXPECT_EQ(traffic.cache->pool().used(), 0u);
}

TEST(SchedulerFuzz, BudgetsHoldBlocksAreConservedAndEverySequenceEnds) {
  for (uint64_t seed = 1; seed <= k_seeds; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(run(seed));
  }
}

}  // namespace
}  // namespace outrider::model
