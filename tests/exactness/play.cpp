#include "tests/exactness/play.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "model/step_costs.hpp"
#include "model/transformer.hpp"
#include "tests/exactness/cases.hpp"
#include "tests/exactness/drafter.hpp"
#include "tests/exactness/run_ahead.hpp"

namespace outrider::exactness {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

/// Preemptions and parkings of one scene: both may throw work away, and small chunks must win.
constexpr uint32_t k_blows_max = 64;
/// Steps after which a scene counts as stuck.
constexpr uint64_t k_steps_max = 1'000'000;
/// A step takes up to so long by the engine's clock: pins of some seconds end in most scenes.
constexpr uint32_t k_step_ms_max = 200;
/// Looking at it moves that clock by up to so much: a step by twice that or three times.
constexpr uint32_t k_look_us_max = 20'000;
/// Of the time, to be had before it is spent: scenes are short.
constexpr double k_explore_share = 0.5;
/// What a controller is told of rows: some hints pay, others do not; or hardly any does.
const model::StepCosts k_cheap_rows{
    .rows = {1, 8, 64, 2048},
    .contexts = {0},
    .times = {milliseconds(10), milliseconds(12), milliseconds(40), milliseconds(1600)}};
const model::StepCosts k_dear_rows{
    .rows = {1, 8, 64, 2048},
    .contexts = {0},
    .times = {milliseconds(10), milliseconds(80), milliseconds(640), milliseconds(20'000)}};

std::unique_ptr<model::Engine> make_engine(const std::shared_ptr<const model::LoadedModel>& model,
                                           const Axes& axes, uint32_t context_tokens,
                                           const Clock& clock) {
  model::EngineOptions options;
  options.context_tokens = context_tokens;
  options.batch_tokens = axes.batch_tokens;
  options.decode_plan = axes.decode_plan;
  options.sequences = axes.sequences;
  options.waiting = 4096;
  options.block_tokens = axes.block_tokens;
  options.kv_kinds = axes.kv_kinds;
  options.local_window = axes.local_window;
  options.prefix_caching = axes.prefix_caching;
  options.speculation = {.ngram = axes.ngram,
                         .depth_max = axes.draft_depth,
                         .fixed_depth = axes.fixed_depth,
                         .explore_share = k_explore_share,
                         .explore_every = 1};
  const auto geometry = model::kv_geometry(model->config, axes.block_tokens, axes.kv_kinds);
  const uint32_t longest = (context_tokens + axes.block_tokens - 1) / axes.block_tokens;
  options.kv_memory_bytes = uint64_t{longest + axes.spare_blocks + 1} * geometry.block_bytes();
  auto engine = model::Engine::create(model, options, clock);
  OUTRIDER_CHECK(engine.ok(), engine.error().message);
  engine.value()->set_step_costs(axes.rows_are_dear ? k_dear_rows : k_cheap_rows);
  return std::move(engine).value();
}

/// Time that moves whenever somebody looks at it, so that steps take what the seed draws: what rows
/// cost is learnt from that, and now and then somebody else has the machine.
class MovingClock final : public Clock {
 public:
  explicit MovingClock(uint64_t seed) : random_(seed) {}

  TimePoint now() const override {
    const uint32_t us = random_.below(k_look_us_max);
    now_ += us * (random_.chance(0.02f) ? 50us : 1us);
    return now_;
  }
  void advance(Duration by) { now_ += by; }

 private:
  mutable Random random_;
  mutable TimePoint now_{0};
};

class Player {
 public:
  Player(const std::shared_ptr<const model::LoadedModel>& model, const Axes& axes,
         const Scene& scene, Random& random, Disturbances& disturbances)
      : ops_(*model->ops),
        axes_(axes),
        scene_(scene),
        random_(random),
        happened_(disturbances),
        clock_(random.next_u64()),
        engine_(make_engine(model, axes, scene.context_tokens, clock_)),
        drafter_(random, model->config.vocab),
        outcomes_(scene.requests.size()),
        finished_(scene.requests.size()) {
    if (axes.draft_model) {
      run_ahead_ = std::make_unique<RunAhead>(model, axes.draft_depth, axes.draft_window,
                                              scene.context_tokens, random, clock_);
    }
    if (!axes.store) return;
    scene.store->begin_batch(axes.restart_store);
    engine_->attach_tier(scene.store);
  }

  std::vector<std::vector<Outcome>> run() {
    ops_.set_threads(axes_.threads);
    uint64_t steps = 0;
    while (submitted_ < scene_.requests.size() || !engine_->idle()) {
      disturb();
      const auto updates = engine_->step();
      for (const model::ChoiceUpdate& update : updates) hear(update);
      if (run_ahead_) {
        run_ahead_->heard(updates);
        const auto used = static_cast<size_t>(HintOutcome::used);
        const uint64_t before = engine_->stats().hints.hints[used];
        run_ahead_->go_on(*engine_);
        happened_.model_hints += engine_->stats().hints.hints[used] - before;
      }
      engine_->check_conservation();
      OUTRIDER_CHECK(++steps < k_steps_max, describe(axes_));
    }
    for (size_t i = 0; i < outcomes_.size(); ++i) {
      OUTRIDER_CHECK(finished_[i].size() == scene_.requests[i]->choices, i);
    }
    const model::EngineStats stats = engine_->stats();
    OUTRIDER_CHECK(stats.blocks_free == stats.blocks_total, stats.blocks_free);
    happened_.steps += stats.steps;
    happened_.preemptions += stats.preemptions;
    happened_.cached_tokens += stats.prefix_hits;
    happened_.evictions += stats.prefix_evictions;
    happened_.read_blocks += stats.tier.read_blocks;
    happened_.ended_pins += stats.pins_ended;
    happened_.drafted += stats.hints.draft_tokens;
    happened_.accepted += stats.hints.accepted_tokens;
    if (!axes_.fixed_depth) happened_.chosen += stats.hints.draft_tokens;
    happened_.explored += stats.explored_steps;
    happened_.restarts += axes_.restart_store ? 1 : 0;
    happened_.bounded_plans += axes_.decode_plan.bounds_nothing() ? 0 : 1;
    if (axes_.local_window != 0) happened_.windowed += outcomes_.size();
    if (axes_.kv_kinds != kernels::KvKinds{}) happened_.other_kinds += outcomes_.size();
    if (axes_.kv_kinds.k_hadamard) happened_.turned_keys += outcomes_.size();
    return std::move(outcomes_);
  }

 private:
  static constexpr uint32_t k_stranger = 1;  ///< generation of keys whose answer nobody wants

  void disturb() {
    clock_.advance(std::chrono::milliseconds(random_.below(k_step_ms_max)));
    if (submitted_ < scene_.requests.size() && (engine_->idle() || random_.chance(axes_.arrival))) {
      submit_next();
    }
    if (random_.chance(axes_.preempt_all) && blows_ < k_blows_max) {
      engine_->preempt_all();
      ++blows_;
    }
    if (random_.chance(axes_.evict)) engine_->evict_cached(1 + random_.below(8));
    if (axes_.store) {
      scene_.store->deliver(random_);
      if (random_.chance(axes_.drop)) scene_.store->drop(random_);
    }
    if (random_.chance(axes_.rechunk)) {
      engine_->set_batch_tokens(1 + random_.below(axes_.batch_tokens));
    }
    if (random_.chance(axes_.rethread)) ops_.set_threads(1 + random_.below(3));
    draft_some();
    park_some();
    cancel_strangers();
  }

  void draft_some() {
    if (scene_.known.empty() || axes_.hint == 0) return;
    for (size_t i = 0; i < submitted_; ++i) {
      for (uint32_t c = 0; c < outcomes_[i].size(); ++c) {
        if (!random_.chance(axes_.hint)) continue;
        const std::vector<TokenOut>& answer = (*scene_.known[i])[c].tokens;
        answer_.clear();
        for (const TokenOut& token : answer) answer_.push_back(token.id);
        drafter_.draft(*engine_, {i, 0}, c,
                       {.prompt = scene_.requests[i]->prompt,
                        .answer = answer_,
                        .said = static_cast<uint32_t>(
                            std::min(outcomes_[i][c].tokens.size(), answer_.size()))});
      }
    }
  }

  void submit_next() {
    const size_t i = submitted_++;
    GenerationRequest request = *scene_.requests[i];
    outcomes_[i].resize(request.choices);
    if (request.choices == 1 && !scene_.known.empty() && random_.chance(axes_.resume)) {
      const std::vector<TokenOut>& answer = scene_.known[i]->front().tokens;
      const uint32_t cut = random_.below(static_cast<uint32_t>(answer.size()) + 1);
      for (uint32_t t = 0; t < cut; ++t) {
        request.committed.push_back(answer[t].id);
        outcomes_[i][0].tokens.push_back(answer[t]);
      }
      happened_.resumptions += cut > 0 ? 1 : 0;
    }
    if (run_ahead_) run_ahead_->submitted({i, 0}, request);
    const auto accepted = engine_->submit({i, 0}, std::move(request));
    OUTRIDER_CHECK(accepted.ok(), accepted.error().message);
  }

  void park_some() {
    for (auto at = parked_.begin(); at != parked_.end();) {
      if (random_.chance(0.3f)) {
        engine_->set_parked({*at, 0}, false);
        at = parked_.erase(at);
      } else {
        ++at;
      }
    }
    if (submitted_ > 0 && random_.chance(axes_.park) && blows_ < k_blows_max) {
      ++blows_;
      const uint64_t i = random_.below(static_cast<uint32_t>(submitted_));
      engine_->set_parked({i, 0}, true);
      parked_.insert(i);
      ++happened_.parkings;
    }
  }

  void cancel_strangers() {
    for (auto at = strangers_.begin(); at != strangers_.end();) {
      if (random_.chance(0.2f)) {
        engine_->cancel({*at, k_stranger});
        at = strangers_.erase(at);
      } else {
        ++at;
      }
    }
    if (submitted_ < scene_.requests.size() && random_.chance(axes_.cancel)) {
      const auto& request =
          *scene_.requests[random_.below(static_cast<uint32_t>(scene_.requests.size()))];
      const auto accepted = engine_->submit({++stranger_, k_stranger}, request);
      OUTRIDER_CHECK(accepted.ok(), accepted.error().message);
      strangers_.insert(stranger_);
      ++happened_.strangers;
    }
  }

  void hear(const model::ChoiceUpdate& update) {
    if (update.key.generation == k_stranger) return;
    const size_t i = update.key.session;
    Outcome& outcome = outcomes_[i][update.choice];
    OUTRIDER_CHECK(finished_[i].count(update.choice) == 0, i, update.choice);
    OUTRIDER_CHECK(update.tokens.empty() || update.first_index == outcome.tokens.size(), i,
                   update.first_index, outcome.tokens.size());
    OUTRIDER_CHECK(update.prompt_tokens.empty() ||
                   update.prompt_first_index == outcome.prompt_tokens.size());
    outcome.tokens.insert(outcome.tokens.end(), update.tokens.begin(), update.tokens.end());
    outcome.prompt_tokens.insert(outcome.prompt_tokens.end(), update.prompt_tokens.begin(),
                                 update.prompt_tokens.end());
    if (!update.finish) return;
    outcome.finish = *update.finish;
    finished_[i].insert(update.choice);
    count_far_rows(outcome, *update.timings);
  }

  /// The last token is not computed, and what was cached was not.
  void count_far_rows(const Outcome& outcome, const RequestTimings& timings) {
    if (axes_.local_window == 0) return;
    const uint32_t end =
        timings.prompt_tokens + static_cast<uint32_t>(std::max<size_t>(outcome.tokens.size(), 1));
    const uint32_t first = std::max(timings.cached.all, k_chunk_tokens + axes_.local_window - 1);
    happened_.far_rows += end - 1 - std::min(end - 1, first);
  }

  kernels::Ops& ops_;
  const Axes& axes_;
  const Scene& scene_;
  Random& random_;
  Disturbances& happened_;
  MovingClock clock_;
  std::unique_ptr<model::Engine> engine_;
  Drafter drafter_;
  std::unique_ptr<RunAhead> run_ahead_;
  std::vector<int32_t> answer_;
  std::vector<std::vector<Outcome>> outcomes_;  ///< [request][choice]
  std::vector<std::set<uint32_t>> finished_;
  size_t submitted_ = 0;
  std::set<uint64_t> parked_;
  std::set<uint64_t> strangers_;
  uint64_t stranger_ = 0;
  uint32_t blows_ = 0;
};

}  // namespace

Disturbances& Disturbances::operator+=(const Disturbances& other) {
  for (const Disturbance& each : k_disturbances) this->*each.count += other.*each.count;
  return *this;
}

std::vector<std::vector<Outcome>> play(const std::shared_ptr<const model::LoadedModel>& model,
                                       const Axes& axes, const Scene& scene, Random& random,
                                       Disturbances& disturbances) {
  return Player(model, axes, scene, random, disturbances).run();
}

}  // namespace outrider::exactness
