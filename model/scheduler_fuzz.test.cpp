#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "base/philox.hpp"
#include "model/fair_share.hpp"
#include "model/kv_cache.hpp"
#include "model/scheduler.hpp"

/// Random traffic through plan_step and a real block pool with its prefix index: what the planner
/// promises must hold whatever the sizes.
namespace outrider::model {
namespace {

/// OUTRIDER_FUZZ_SEEDS asks for a longer run.
uint64_t seeds() {
  const char* asked = std::getenv("OUTRIDER_FUZZ_SEEDS");
  return asked == nullptr ? 12 : std::strtoull(asked, nullptr, 10);
}

struct Job {
  KvSequence kv;
  SequenceView view;
  std::string tenant;
  uint32_t end = 0;     ///< Tokens at which it is done.
  uint32_t family = 0;  ///< Whose members share their first tokens …
  uint32_t shared = 0;  ///< … so many blocks of them.
  std::vector<BlockId> chain = {};
  uint32_t cached = 0;       ///< Waiting: blocks that the index had for this plan.
  uint32_t steps_first = 0;  ///< Steps in a row that it was first in order and got no row.
  uint32_t verified = 0;     ///< Hints that this step computed.

  /// Names all full blocks of its known tokens; those of no family are its own.
  void name_blocks() {
    while ((chain.size() + 1) * 16 <= view.length) {
      const auto i = static_cast<uint32_t>(chain.size());
      const std::string owner =
          i < shared ? "family " + std::to_string(family) : "job " + std::to_string(view.arrival);
      chain.push_back(sha256(tenant + " " + owner + " " + std::to_string(i)));
    }
  }
};

struct Traffic {
  explicit Traffic(uint64_t seed) : random(seed) {
    const uint32_t blocks = 2 + random.below(40);
    budget.batch_tokens = random.chance(0.3f) ? 1 + random.below(4) : 1 + random.below(200);
    budget.sequences = 1 + random.below(12);
    budget.chunk_min = 1 + random.below(40);
    budget.prefill_beside_drafts = 1 + random.below(20);
    const kernels::KvGeometry geometry = {.layers = 1, .kv_heads = 1, .head_dim = 1};
    cache = std::move(KvCache::create(kernels::make_ref_ops(), geometry, blocks)).value();
    remaining = 20 + random.below(60);
    tenants = 1 + random.below(4);
    families = 1 + random.below(3);
    caching = random.chance(0.8f);
    drafting = random.chance(0.4f);
  }

  void arrive() {
    const uint32_t capacity = cache->pool().total() * 16;
    Job job{.kv = KvSequence(*cache), .view = {}, .tenant = {}};
    job.view.arrival = ++arrivals;
    job.tenant = "t" + std::to_string(random.below(tenants));
    job.view.priority = static_cast<int32_t>(random.below(3)) - 1;
    job.view.draft = drafting && random.chance(0.3f);
    job.view.slots = !job.view.draft && random.chance(0.2f) ? 1 + random.below(4) : 1;
    if (random.chance(0.3f)) job.view.rows_max = 1 + random.below(60);
    job.view.length =
        1 + random.below(random.chance(0.5f) ? std::min(20u, capacity - 1) : capacity - 1);
    job.end = std::min(capacity, job.view.length + 1 + random.below(40));
    job.family = random.below(families);
    job.shared = random.below(cache->pool().total() + 1);
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
      if (caching) find_cached(job);
      const uint32_t room = job.end - job.view.length;
      const bool decodes =
          job.view.running && job.view.slots == 1 && job.view.length - job.kv.length() == 1;
      job.view.hints = decodes && random.chance(0.5f) ? random.below(room + 1) : 0;
      out.push_back(job.view);
    }
    budget.blocks_free = cache->available();
    return out;
  }

  /// As the engine does it.
  void find_cached(Job& job) {
    SequenceView& view = job.view;
    job.cached = 0;
    view.next_block = 0;
    view.joins = false;
    if (view.length - view.computed <= 1) return;
    job.name_blocks();
    const uint32_t usable = (view.length - 1) / 16;
    const bool at_boundary = view.computed % 16 == 0;
    if (at_boundary && usable > job.kv.published()) {
      const auto chain = std::span(job.chain).first(usable);
      job.cached = cache->index().longest(chain);
      if (view.running) {
        take_cached(job);
        view.computed = job.kv.length();
        view.blocks = static_cast<uint32_t>(job.kv.table().size());
        view.exclusive_blocks = job.kv.exclusive_blocks();
      } else {
        view.computed = job.cached * 16;
        view.blocks = cache->held(chain.first(job.cached));
      }
    }
    const uint32_t next = view.computed / 16;
    if (next >= job.chain.size()) return;
    view.next_block = 1 + hash64(std::as_bytes(std::span(job.chain[next]))) / 2;
    view.joins = at_boundary && next < usable;
  }
  void take_cached(Job& job) {
    const uint32_t had = job.kv.published();
    if (job.cached <= had) return;
    job.kv.take(std::span(job.chain).subspan(had, job.cached - had));
    taken += job.cached - had;
  }

  /// Nobody computes a block that another one computes in the same step.
  void check_joins(const std::vector<SequenceView>& views, const StepPlan& plan) {
    std::map<uint64_t, std::vector<uint32_t>> wanted;
    for (const PlannedRows& r : plan.rows) {
      if (views[r.sequence].next_block != 0)
        wanted[views[r.sequence].next_block].push_back(r.sequence);
    }
    for (const auto& [block, who] : wanted) {
      const auto apart =
          std::count_if(who.begin(), who.end(), [&](uint32_t s) { return !views[s].joins; });
      ASSERT_LE(who.size(), static_cast<size_t>(apart) + 1);
    }
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
      take_cached(jobs[s]);
    }
    uint32_t rows = 0;
    uint32_t slots = 0;
    for (const auto& [s, count] : plan.rows) {
      ASSERT_TRUE(jobs[s].view.running && !jobs[s].view.parked);
      ASSERT_LE(jobs[s].kv.length() + count, jobs[s].view.length + jobs[s].view.hints);
      const uint32_t known = jobs[s].view.length - jobs[s].kv.length();
      jobs[s].verified = count > known ? count - known : 0;
      hints += jobs[s].verified;
      ASSERT_LE(count, jobs[s].view.rows_max);
      ASSERT_TRUE(jobs[s].kv.append(count)) << "the plan promised blocks";
      shares.charge(jobs[s].tenant, count);
      rows += count;
      slots += std::min(jobs[s].view.slots, budget.sequences);
    }
    ASSERT_LE(rows, budget.batch_tokens);
    ASSERT_LE(slots, budget.sequences);
    for (const auto& [s, count] : plan.rows) {
      Job& job = jobs[s];
      if (caching) job.name_blocks();
      while (caching && job.kv.published() < std::min(job.kv.length(), job.view.length) / 16) {
        job.kv.publish(job.chain[job.kv.published()], 0);
      }
    }
  }

  /// Hints change nobody's rows.
  void check_hints(std::vector<SequenceView> views, const StepPlan& plan) const {
    const std::vector<SequenceView> with = views;
    for (SequenceView& view : views) view.hints = 0;
    StepPlan known = plan;
    for (PlannedRows& r : known.rows) {
      const SequenceView& view = with[r.sequence];
      if (view.hints > 0) r.rows = std::min(r.rows, view.length - view.computed);
    }
    const StepPlan without = plan_step(views, budget);
    ASSERT_EQ(known.rows, without.rows);
    ASSERT_EQ(plan.preempt, without.preempt);
    ASSERT_EQ(plan.admit, without.admit);
  }

  /// The naive model of the order: again and again, of the tenant that will have been served least
  /// by then, the most urgent sequence; drafts before all others.
  std::vector<size_t> naive_order(const std::vector<SequenceView>& views) const {
    std::map<std::pair<bool, uint32_t>, uint64_t> served;
    const auto group = [&](size_t i) { return std::pair(!views[i].draft, views[i].tenant); };
    std::vector<size_t> left;
    std::vector<size_t> order;
    for (size_t i = 0; i < views.size(); ++i) {
      served[group(i)] = views[i].served;
      if (!views[i].parked) left.push_back(i);
    }
    while (!left.empty()) {
      const auto next = std::min_element(left.begin(), left.end(), [&](size_t a, size_t b) {
        const auto key = [&](size_t i) {
          const SequenceView& v = views[i];
          return std::tuple(!v.draft, served[group(i)], v.tenant, v.priority, v.arrival);
        };
        return key(a) < key(b);
      });
      served[group(*next)] += views[*next].length - views[*next].computed;
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

  /// What is no draft gets few rows of prefill beside one, and nothing that one has.
  void check_drafts(const std::vector<SequenceView>& views, const StepPlan& plan) const {
    const auto is_draft = [](const SequenceView& view) { return view.draft; };
    if (std::none_of(views.begin(), views.end(), is_draft)) return;
    uint32_t prefilled = 0;
    for (const PlannedRows& r : plan.rows) {
      const SequenceView& view = views[r.sequence];
      const bool decodes = view.running && view.length - view.computed == 1;
      if (!view.draft && !decodes) prefilled += r.rows;
    }
    ASSERT_LE(prefilled, budget.prefill_beside_drafts);
    const bool wants_rows = std::any_of(views.begin(), views.end(), [](const SequenceView& view) {
      return view.draft && !view.parked;
    });
    for (const uint32_t s : plan.preempt) ASSERT_TRUE(wants_rows || !views[s].draft);
  }

  /// The first runnable one may go without rows in one plan only (rule 7), unless a parked draft
  /// has what it lacks.
  void check_progress(const std::vector<SequenceView>& views, const StepPlan& plan) {
    const std::vector<size_t> order = naive_order(views);
    const bool may_lack = std::any_of(views.begin(), views.end(), [](const SequenceView& view) {
      return view.draft && view.parked && view.running;
    });
    const bool waits = may_lack && !order.empty() && !views[order.front()].draft;
    const size_t first = order.empty() || waits ? jobs.size() : order.front();
    for (size_t i = 0; i < jobs.size(); ++i) {
      const bool got = std::any_of(plan.rows.begin(), plan.rows.end(),
                                   [&](const PlannedRows& r) { return r.sequence == i; });
      jobs[i].steps_first =
          i == first && !got && jobs[i].view.running ? jobs[i].steps_first + 1 : 0;
      ASSERT_LE(jobs[i].steps_first, 1u);
    }
    ASSERT_TRUE(first == jobs.size() || !plan.rows.empty() || !plan.preempt.empty());
  }

  /// Everything known is computed: one more token and some of what was hinted at, a fork, or the
  /// end.
  void sample() {
    for (size_t i = 0; i < jobs.size(); ++i) {
      Job& job = jobs[i];
      if (!job.view.running || job.kv.length() < job.view.length) continue;
      for (uint32_t c = 1; c < job.view.slots; ++c) {
        Job child{job.kv.fork(), job.view, job.tenant, job.end, job.family, job.shared, job.chain};
        child.view.arrival = ++arrivals;
        child.view.slots = 1;
        ++child.view.length;
        forked.push_back(std::move(child));
      }
      job.view.slots = 1;
      job.view.length += 1 + random.below(job.verified + 1);
      job.verified = 0;
      job.kv.crop(std::min(job.kv.length(), job.view.length - 1));
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
  uint32_t families = 1;
  bool caching = true;
  bool drafting = false;
  uint64_t taken = 0;  ///< Blocks from the index.
  uint64_t hints = 0;  ///< Rows for them.
};

void run(uint64_t seed, uint64_t& taken, uint64_t& hints) {
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
    ASSERT_NO_FATAL_FAILURE(traffic.check_joins(views, plan));
    ASSERT_NO_FATAL_FAILURE(traffic.check_hints(views, plan));
    ASSERT_NO_FATAL_FAILURE(traffic.check_drafts(views, plan));
    ASSERT_NO_FATAL_FAILURE(traffic.execute(plan));
    ASSERT_NO_FATAL_FAILURE(traffic.check_progress(views, plan));
    for (const PlannedRows& r : plan.rows) rows += r.rows;
    traffic.sample();
    if (traffic.random.chance(0.05f)) traffic.cache->evict(traffic.random.below(8));
    std::vector<const KvSequence*> sequences;
    for (const Job& job : traffic.jobs) sequences.push_back(&job.kv);
    traffic.cache->check_conservation(sequences);
    ASSERT_LT(++steps, 200'000u) << "starving after " << rows << " rows";
  }
  EXPECT_EQ(traffic.cache->available(), traffic.cache->pool().total());
  taken += traffic.taken;
  hints += traffic.hints;
}

TEST(SchedulerFuzz, BudgetsHoldBlocksAreConservedAndEverySequenceEnds) {
  uint64_t taken = 0;
  uint64_t hints = 0;
  for (uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_NO_FATAL_FAILURE(run(seed, taken, hints));
  }
  EXPECT_GT(taken, 0u);
  EXPECT_GT(hints, 0u);
}

}  // namespace
}  // namespace outrider::model
