// Prefill and decode speed of the whole engine, by llama-bench's test names: ppN computes N prompt
// tokens, tgN generates N tokens after a one-token prompt, tgNxB does so for B sequences at once.
// One JSON line per test: medians over the repetitions.

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/philox.hpp"
#include "model/engine.hpp"
#include "model/loaded_model.hpp"

namespace outrider {
namespace {

struct Options {
  std::string model;
  uint32_t threads = 2;
  uint32_t prompt = 512;
  uint32_t generate = 64;
  uint32_t repetitions = 3;
  std::vector<uint32_t> batches = {1, 8};
};

struct Measured {
  double seconds = 0;
  uint64_t steps = 0;
};

GenerationRequest make_request(Random& random, uint32_t vocabulary, uint32_t prompt_tokens,
                               uint32_t max_tokens) {
  GenerationRequest request;
  for (uint32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random.below(vocabulary)));
  }
  request.sampling.temperature = 0;
  request.stop.max_tokens = max_tokens;
  request.stop.ignore_eos = true;
  return request;
}

/// Runs `count` equal requests together to their end.
Measured run(model::Engine& engine, const Clock& clock, Random& random, uint32_t vocabulary,
             uint32_t count, uint32_t prompt_tokens, uint32_t max_tokens) {
  static uint64_t session = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto accepted =
        engine.submit({++session, 0}, make_request(random, vocabulary, prompt_tokens, max_tokens));
    OUTRIDER_CHECK(accepted.ok(), accepted.error().message);
  }
  Measured measured;
  const TimePoint start = clock.now();
  while (!engine.idle()) {
    engine.step();
    ++measured.steps;
  }
  measured.seconds = to_seconds(clock.now() - start);
  return measured;
}

void report(const Options& options, const std::string& test, uint64_t tokens,
            std::vector<Measured> runs) {
  std::sort(runs.begin(), runs.end(),
            [](const Measured& a, const Measured& b) { return a.seconds < b.seconds; });
  const Measured& median = runs[runs.size() / 2];
  nlohmann::ordered_json line;
  line["test"] = test;
  line["model"] = options.model;
  line["threads"] = options.threads;
  line["tokens_per_s"] = static_cast<double>(tokens) / median.seconds;
  line["ms_per_step"] = median.seconds * 1e3 / static_cast<double>(median.steps);
  line["runs"] = runs.size();
  std::cout << line.dump() << std::endl;
}

int main_with(const Options& options) {
  std::shared_ptr<kernels::Ops> ops =
      kernels::make_cpu_ops(options.threads, kernels::default_isa());
  auto loaded = model::load_model(options.model, ops);
  if (!loaded) {
    std::cerr << loaded.error().message << '\n';
    return 1;
  }
  std::cerr << ops->description() << '\n';
  const SteadyClock clock;
  model::EngineOptions engine_options;
  engine_options.batch_tokens = std::min<uint32_t>(512, options.prompt);
  auto engine = model::Engine::create(*loaded, engine_options, clock);
  if (!engine) {
    std::cerr << engine.error().message << '\n';
    return 1;
  }
  Random random(1);
  const uint32_t vocabulary = (*loaded)->config.vocab;
  const auto measure = [&](uint32_t count, uint32_t prompt, uint32_t generate) {
    run(**engine, clock, random, vocabulary, count, prompt, generate);  // warm-up
    std::vector<Measured> runs;
    for (uint32_t i = 0; i < options.repetitions; ++i) {
      runs.push_back(run(**engine, clock, random, vocabulary, count, prompt, generate));
    }
    return runs;
  };
  report(options, "pp" + std::to_string(options.prompt), options.prompt,
         measure(1, options.prompt, 1));
  for (const uint32_t batch : options.batches) {
    const std::string suffix = batch == 1 ? "" : "x" + std::to_string(batch);
    report(options, "tg" + std::to_string(options.generate) + suffix,
           uint64_t{batch} * options.generate, measure(batch, 1, options.generate));
  }
  return 0;
}

}  // namespace
}  // namespace outrider

int main(int argc, char** argv) {
  outrider::Options options;
  CLI::App app("Prefill and decode speed of the engine, one JSON line per test");
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--threads", options.threads);
  app.add_option("--prompt", options.prompt, "prompt tokens of the pp test");
  app.add_option("--gen", options.generate, "generated tokens of the tg tests");
  app.add_option("--repetitions", options.repetitions);
  app.add_option("--batch", options.batches, "sequences of the tg tests")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  return outrider::main_with(options);
}
