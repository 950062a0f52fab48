#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "actors/draft_feed.hpp"
#include "actors/draft_runs.hpp"
#include "base/philox.hpp"
#include "model/loaded_model.hpp"
#include "model/step_costs.hpp"

/// Verifying by rejection, from the draft's engine through runs and feed to the target's answer:
/// texts are as frequent as without drafts. And each way in which drafts could bend that is
/// noticed.
namespace outrider::exactness {
namespace {

using Text = std::vector<int32_t>;
using Histogram = std::map<Text, uint32_t>;

/// What goes wrong with hints: tests of the tester.
enum class Sabotage : uint8_t {
  none,
  even_odds,  ///< The draft says to have drawn from even odds.
  favourite,  ///< It shows what it thinks most probable instead of what it drew.
};

constexpr uint32_t k_texts = 4000;
constexpr uint32_t k_together = 16;

std::shared_ptr<const model::LoadedModel> tiny() {
  static const auto loaded = [] {
    auto model = model::load_model("tests/support/models/tiny-llama.gguf",
                                   kernels::make_cpu_ops(1, kernels::default_isa()));
    OUTRIDER_CHECK(model.ok(), model.error().message);
    return std::shared_ptr<const model::LoadedModel>(std::move(model).value());
  }();
  return loaded;
}

GenerationRequest request(uint64_t seed, SpeculationMethod method) {
  GenerationRequest out;
  out.prompt = {11, 42, 7, 19, 3, 28};
  out.sampling.seed = seed;
  out.sampling.temperature = 0.6f;
  out.sampling.top_k = 6;
  out.logprobs = 0;
  out.stop = {.max_tokens = 8, .ignore_eos = true};
  out.speculation.method = method;
  return out;
}

std::unique_ptr<model::Engine> make_engine(uint32_t sequences, uint32_t depth, uint32_t window,
                                           const Clock& clock, bool fixed_depth = true) {
  model::EngineOptions options;
  options.context_tokens = 64;
  options.sequences = sequences;
  options.kv_memory_bytes = uint64_t{8} << 20;
  options.speculation = {.depth_max = depth, .fixed_depth = fixed_depth};
  options.local_window = window;
  auto engine = std::move(model::Engine::create(tiny(), options, clock)).value();
  // More rows cost next to nothing: drafts pay as long as some of them come true.
  engine->set_step_costs(
      {.rows = {1, 64},
       .contexts = {0},
       .times = {std::chrono::microseconds(1000), std::chrono::microseconds(1200)}});
  return engine;
}

/// A draft of the same model at another temperature, and with a window: right now and then. Between
/// two steps of the target it makes one to five; some of its hints are lost.
class Draft {
 public:
  Draft(Sabotage sabotage, Random& random, const Clock& clock)
      : sabotage_(sabotage),
        random_(random),
        engine_(actors::make_stepper(make_engine(2 * k_together, 0, 8, clock))),
        runs_(*engine_, {.tokenizer = "tokens", .context_tokens = 64}),
        feed_({.target = 1, .tokenizer = "tokens", .depth_max = 3, .duty = {.always = true}}) {}

  void begin(RequestKey key, GenerationRequest request) {
    request.sampling.temperature = 1.2f;
    feed_.begin(key, request);
    feed_.take(schema::DraftLease{key, 1, k_worker, {}});
  }
  void go_on(std::span<const model::ChoiceUpdate> updates, model::Engine& target) {
    feed_.commit(updates, {});
    for (auto& [worker, message] : feed_.take_outbox().to_drafts) {
      std::visit([&](auto& content) { runs_.take(std::move(content)); }, message);
    }
    for (uint32_t steps = 1 + random_.below(5); steps > 0; --steps) {
      runs_.advance(engine_->step(), std::chrono::milliseconds(1));
    }
    feed_.heard(k_worker);
    feed_.take(schema::DraftHints{runs_.take_replies().hints});
    for (actors::DraftedHint& hint : feed_.take_outbox().hints) {
      if (random_.chance(0.05f)) continue;
      if (!hint.branches.empty() && hint.branches[0].drawn_from) spoil(hint.branches);
      target.hint(hint.key, hint.choice,
                  {.base_length = hint.base_length,
                   .base_hash = hint.base_hash,
                   .branches = hint.branches,
                   .source = HintSource::draft_model});
    }
  }

 private:
  static constexpr uint64_t k_worker = 2;

  void spoil(std::vector<model::HintBranch>& branches) const {
    for (size_t i = 0; i < branches.size(); ++i) {
      const model::DraftDistribution& honest = *branches[i].drawn_from;
      if (sabotage_ == Sabotage::even_odds) {
        model::DraftDistribution even = honest;
        const auto count = static_cast<uint32_t>(even.entries.size());
        for (auto& entry : even.entries) {
          entry.weight = static_cast<uint16_t>(model::k_draft_weights / count);
        }
        auto& first = even.entries.front().weight;
        first = static_cast<uint16_t>(first + model::k_draft_weights % count);
        branches[i].drawn_from = std::make_shared<model::DraftDistribution>(std::move(even));
      } else if (sabotage_ == Sabotage::favourite) {
        const auto best = std::max_element(
            honest.entries.begin(), honest.entries.end(),
            [](const auto& left, const auto& right) { return left.weight < right.weight; });
        if (best->id == branches[i].token) continue;
        branches[i].token = best->id;
        branches.resize(i + 1);  // What it drew behind the other one.
      }
    }
  }

  Sabotage sabotage_;
  Random& random_;
  std::unique_ptr<actors::Stepper> engine_;
  actors::DraftRuns runs_;
  actors::DraftFeed feed_;
};

/// Of tokens: their log-probabilities, added up.
struct Surprise {
  double count = 0;
  double sum = 0;
  double squares = 0;

  void add(double logprob) {
    ++count;
    sum += logprob;
    squares += logprob * logprob;
  }
  double mean() const { return sum / count; }
  double error() const { return (squares / count - mean() * mean()) / count; }
};

struct Played {
  Histogram texts;
  Surprise surprise;
  HintCounters hints;
};

/// Of the last tokens, when drafts have come: few enough that each is seen often.
Text outline(const Text& text) {
  Text out;
  for (size_t i = text.size() - 3; i < text.size(); ++i) out.push_back(text[i] % 4);
  return out;
}

/// `k_texts` answers to one prompt, each with a seed of its own, some at a time.
Played play(uint64_t first_seed, SpeculationMethod method, bool drafts,
            Sabotage sabotage = Sabotage::none, bool fixed_depth = true) {
  ManualClock clock;
  Random random(first_seed);
  const auto engine = make_engine(k_together, 3, 0, clock, fixed_depth);
  Draft draft(sabotage, random, clock);
  std::map<RequestKey, Text> said;
  Played out;
  for (uint32_t begun = 0; begun < k_texts;) {
    for (uint32_t i = 0; i < k_together && begun < k_texts; ++i) {
      const RequestKey key{++begun, 0};
      GenerationRequest asked = request(first_seed + begun, method);
      if (drafts) draft.begin(key, asked);
      EXPECT_TRUE(engine->submit(key, std::move(asked)).ok());
    }
    while (!engine->idle()) {
      const auto updates = engine->step();
      for (const model::ChoiceUpdate& update : updates) {
        for (const TokenOut& token : update.tokens) {
          said[update.key].push_back(token.id);
          out.surprise.add(double{token.logprob->logprob});
        }
      }
      if (drafts) draft.go_on(updates, *engine);
    }
  }
  out.hints = engine->stats().hints;
  for (const auto& [key, text] : said) ++out.texts[outline(text)];
  return out;
}

/// By how many standard deviations the two samples differ more than two of one distribution would
/// on average: chi-square of two samples, rare texts taken together.
double deviation(const Histogram& a, const Histogram& b) {
  std::map<Text, std::pair<double, double>> pairs;
  for (const auto& [text, count] : a) pairs[text].first = count;
  for (const auto& [text, count] : b) pairs[text].second = count;
  double chi_square = 0;
  uint32_t classes = 0;
  std::pair<double, double> rare;
  const auto add = [&](const std::pair<double, double>& of) {
    if (of.first + of.second == 0) return;
    const double difference = of.first - of.second;
    chi_square += difference * difference / (of.first + of.second);
    ++classes;
  };
  for (const auto& [text, of] : pairs) {
    if (of.first + of.second >= 16) {
      add(of);
    } else {
      rare.first += of.first;
      rare.second += of.second;
    }
  }
  add(rare);
  const double freedom = classes - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

/// By how many standard deviations their tokens differ in how probable they are.
double difference(const Surprise& a, const Surprise& b) {
  return std::abs(a.mean() - b.mean()) / std::sqrt(a.error() + b.error());
}

const Played& plain() {
  static const Played played = play(1'000'000, SpeculationMethod::exact, false);
  return played;
}

constexpr double k_bound = 5;

TEST(RejectSampling, TextsAreAsFrequentAsWithoutDrafts) {
  const Played drafted = play(5'000'000, SpeculationMethod::reject_sampling, true);
  EXPECT_LT(deviation(drafted.texts, plain().texts), k_bound);
  EXPECT_LT(difference(drafted.surprise, plain().surprise), k_bound);
  EXPECT_GT(drafted.hints.accepted_tokens, k_texts / 4) << "drafts played a part";
  EXPECT_GT(drafted.hints.draft_tokens - drafted.hints.accepted_tokens, k_texts / 4);
  // With the same seeds the exact method gives other texts, and drafts do not change these.
  const Played exact = play(5'000'000, SpeculationMethod::exact, true);
  EXPECT_GT(exact.hints.accepted_tokens, k_texts / 4);
  EXPECT_FALSE(exact.texts == drafted.texts);
  EXPECT_TRUE(exact.texts == play(5'000'000, SpeculationMethod::exact, false).texts);
}

TEST(RejectSampling, TheControllerMayChooseHowFarDraftsGo) {
  const Played drafted =
      play(5'000'000, SpeculationMethod::reject_sampling, true, Sabotage::none, false);
  EXPECT_LT(deviation(drafted.texts, plain().texts), k_bound);
  EXPECT_LT(difference(drafted.surprise, plain().surprise), k_bound);
  EXPECT_GT(drafted.hints.accepted_tokens, k_texts / 4) << "drafts played a part";
  const Played fixed = play(5'000'000, SpeculationMethod::reject_sampling, true);
  EXPECT_LT(drafted.hints.draft_tokens, fixed.hints.draft_tokens) << "not always as far as may be";
}

TEST(RejectSampling, ADraftThatLiesAboutWhatItDrewFromIsNoticed) {
  const Played drafted =
      play(5'000'000, SpeculationMethod::reject_sampling, true, Sabotage::even_odds);
  EXPECT_GT(deviation(drafted.texts, plain().texts), k_bound);
  EXPECT_GT(difference(drafted.surprise, plain().surprise), k_bound);
}

TEST(RejectSampling, ADraftThatShowsWhatItDidNotDrawIsNoticed) {
  const Played drafted =
      play(5'000'000, SpeculationMethod::reject_sampling, true, Sabotage::favourite);
  EXPECT_GT(deviation(drafted.texts, plain().texts), k_bound);
  EXPECT_GT(difference(drafted.surprise, plain().surprise), k_bound);
}

TEST(RejectSampling, TwoSamplesOfOneDistributionDoNotDiffer) {
  const Played other = play(9'000'000, SpeculationMethod::exact, false);
  EXPECT_LT(deviation(other.texts, plain().texts), k_bound);
  EXPECT_LT(difference(other.surprise, plain().surprise), k_bound);
}

}  // namespace
}  // namespace outrider::exactness
