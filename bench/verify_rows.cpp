// What verifying hints costs: steps of one sequence with 1, 2, 4, 8, 16 or other rows behind 0,
// 1024 and 4096 tokens, as an engine runs them, with hints that are all wrong. Beside each: the
// ratio to one row, and how far the table that the controller decides by is off, as it was measured
// before (model/step_costs) and as it has been kept up to date meanwhile (model/cost_refresh).
//   verify_rows --model MODEL.gguf [--threads 2] [--steps 48] [--rounds 12] [--rows 1,8,9]

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/check.hpp"
#include "base/philox.hpp"
#include "model/engine.hpp"
#include "model/hint_trie.hpp"
#include "model/step_costs.hpp"

namespace outrider {
namespace {

constexpr uint32_t k_rows_max = 16;
constexpr uint32_t k_depths[] = {0, 1024, 4096};

struct Flags {
  std::string model;
  uint32_t threads = 2;
  uint32_t steps = 48;
  uint32_t rounds = 12;
  std::vector<uint32_t> rows = {1, 2, 4, 8, 16};
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A sequence that decodes, and what its text is so far.
class Sequence {
 public:
  Sequence(model::Engine& engine, uint32_t vocabulary, uint32_t depth, uint32_t max_tokens)
      : engine_(engine), vocabulary_(vocabulary) {
    GenerationRequest request;
    for (uint32_t i = 0; i <= depth; ++i) {
      request.prompt.push_back(static_cast<int32_t>(random_.below(vocabulary)));
    }
    hash_ = model::text_hash(model::k_empty_text, request.prompt);
    length_ = depth + 1;
    request.sampling.temperature = 0;
    request.stop = {.max_tokens = max_tokens, .ignore_eos = true};
    OUTRIDER_CHECK(engine_.submit(k_key, std::move(request)).ok());
    while (length_ == depth + 1) step(0);  // the prompt, and a first token
  }
  ~Sequence() {
    engine_.cancel(k_key);
    while (!engine_.idle()) engine_.step();
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  /// With so many hints. Random ones may come true once in a vocabulary: the step is the same.
  void step(uint32_t hints) {
    std::vector<model::HintBranch> branches;
    for (uint32_t i = 0; i < hints; ++i) {
      branches.push_back({.parent = static_cast<int32_t>(i) - 1,
                          .token = static_cast<int32_t>(random_.below(vocabulary_)),
                          .confidence = 255});
    }
    if (hints > 0) {
      engine_.hint(k_key, 0, {.base_length = length_, .base_hash = hash_, .branches = branches});
    }
    for (const model::ChoiceUpdate& update : engine_.step()) {
      for (const TokenOut& token : update.tokens) {
        hash_ = model::text_hash(hash_, token.id);
        ++length_;
      }
    }
  }

 private:
  static constexpr RequestKey k_key{1, 0};

  model::Engine& engine_;
  uint32_t vocabulary_;
  Random random_{1};
  uint64_t hash_ = 0;
  uint32_t length_ = 0;
};

struct Depth {
  uint32_t tokens = 0;
  std::vector<double> ms;         ///< by rows
  model::StepCosts costs_by_now;  ///< the controller's, behind the last of these steps
};

/// Medians by depth and rows. Rounds go over all rows in turn, so that a slow moment is nobody's.
std::vector<Depth> measure(model::Engine& engine, uint32_t vocabulary, const Flags& flags,
                           const Clock& clock) {
  std::vector<Depth> out;
  for (const uint32_t depth : k_depths) {
    if (depth + 1024 > engine.context_tokens()) break;
    Sequence sequence(engine, vocabulary, depth, 1000);
    std::vector<std::vector<double>> times(flags.rows.size());
    for (uint32_t round = 0; round < flags.rounds; ++round) {
      for (size_t at = 0; at < flags.rows.size(); ++at) {
        sequence.step(flags.rows[at] - 1);
        const uint64_t before = engine.stats().rows;
        for (uint32_t i = 0; i < flags.steps / flags.rounds + 1; ++i) {
          const TimePoint start = clock.now();
          sequence.step(flags.rows[at] - 1);
          times[at].push_back(to_seconds(clock.now() - start) * 1e3);
        }
        const uint64_t rows = engine.stats().rows - before;
        OUTRIDER_CHECK(rows == uint64_t{flags.rows[at]} * (flags.steps / flags.rounds + 1), rows);
      }
    }
    out.push_back({depth, {}, engine.step_costs()});
    for (const auto& of_rows : times) out.back().ms.push_back(median(of_rows));
  }
  return out;
}

double ms_by(const model::StepCosts& costs, model::StepShare share) {
  return to_seconds(costs.step({&share, 1})) * 1e3;
}

int run(const Flags& flags) {
  const SteadyClock clock;
  auto ops = kernels::open_cpu_ops(flags.threads, kernels::default_isa(), {});
  if (!ops) return std::fprintf(stderr, "%s\n", ops.error().message.c_str()), 1;
  const std::shared_ptr<kernels::Ops> shared = std::move(*ops);
  const auto model = model::load_model(flags.model, shared);
  if (!model) return std::fprintf(stderr, "%s\n", model.error().message.c_str()), 1;
  model::EngineOptions options;
  options.sequences = 4;
  options.speculation = {.depth_max = k_rows_max - 1, .fixed_depth = true};
  auto engine = model::Engine::create(*model, options, clock);
  if (!engine) return std::fprintf(stderr, "%s\n", engine.error().message.c_str()), 1;
  const model::StepCosts table = model::measure_step_costs(**engine, clock);
  (*engine)->set_step_costs(table);
  const auto depths = measure(**engine, (*model)->config.vocab, flags, clock);
  std::printf(
      "| depth | rows | ms | of one row | table | off | table by now | off |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const Depth& depth : depths) {
    for (size_t at = 0; at < depth.ms.size(); ++at) {
      const model::StepShare share{.rows = flags.rows[at], .context = depth.tokens};
      const double ms = depth.ms[at];
      const double said = ms_by(table, share);
      const double says = ms_by(depth.costs_by_now, share);
      std::printf("| %u | %u | %.2f | %.2f | %.2f | %+.0f %% | %.2f | %+.0f %% |\n", depth.tokens,
                  flags.rows[at], ms, ms / depth.ms[0], said, 100 * (said / ms - 1), says,
                  100 * (says / ms - 1));
    }
  }
  return 0;
}

}  // namespace
}  // namespace outrider

int main(int argc, char** argv) {
  CLI::App app("What verifying hints costs", "verify_rows");
  outrider::Flags flags;
  app.add_option("--model", flags.model, "GGUF file")->required();
  app.option_defaults()->always_capture_default();
  app.add_option("--threads", flags.threads, "of a step")->check(CLI::Range(1, 1024));
  app.add_option("--steps", flags.steps, "of each number of rows")->check(CLI::Range(1, 500));
  app.add_option("--rounds", flags.rounds, "through all numbers of rows")
      ->check(CLI::Range(1, 100));
  app.add_option("--rows", flags.rows, "of a step, by commas")
      ->delimiter(',')
      ->check(CLI::Range(1u, outrider::k_rows_max));
  CLI11_PARSE(app, argc, argv);
  return outrider::run(flags);
}
