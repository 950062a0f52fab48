/// Runs random requests alone and inside random batches, and compares every token and logprob bit:
///   outrider_exactness --model models/smollm2-135m.gguf --seed 1 --count 300
/// Exit code 0: no difference; 1: some, with seed and circumstances, or windows that no prompt was
/// long enough for; 2: cannot run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "tests/exactness/harness.hpp"

namespace {

using outrider::exactness::Options;

int run(const Options& options, bool verbose) {
  const outrider::SteadyClock clock;
  const outrider::TimePoint start = clock.now();
  const auto report = outrider::exactness::run(options, verbose ? &std::cerr : nullptr);
  if (!report) {
    std::fprintf(stderr, "outrider_exactness: %s\n", report.error().message.c_str());
    return 2;
  }
  const auto& happened = report->disturbances;
  std::printf("%s: seed %llu: %s\n", report->tally.exact() ? "exact" : "NOT EXACT",
              static_cast<unsigned long long>(options.seed), to_string(report->tally).c_str());
  std::printf(
      "  %llu steps, %llu preemptions, %llu parkings, %llu strangers cancelled, "
      "%llu resumptions, %llu cached tokens, %llu blocks from the store, "
      "%llu restarts of it, %llu evictions, %llu hints verified, %llu came true, %llu verified as "
      "the controller chose, %llu hints of a draft model, %llu requests "
      "with other KV than fp16, %llu with a "
      "window, %llu rows whose window began behind the first chunk, %llu pins ended; %.1f s\n",
      static_cast<unsigned long long>(happened.steps),
      static_cast<unsigned long long>(happened.preemptions),
      static_cast<unsigned long long>(happened.parkings),
      static_cast<unsigned long long>(happened.strangers),
      static_cast<unsigned long long>(happened.resumptions),
      static_cast<unsigned long long>(happened.cached_tokens),
      static_cast<unsigned long long>(happened.read_blocks),
      static_cast<unsigned long long>(happened.restarts),
      static_cast<unsigned long long>(happened.evictions),
      static_cast<unsigned long long>(happened.drafted),
      static_cast<unsigned long long>(happened.accepted),
      static_cast<unsigned long long>(happened.chosen),
      static_cast<unsigned long long>(happened.model_hints),
      static_cast<unsigned long long>(happened.other_kinds),
      static_cast<unsigned long long>(happened.windowed),
      static_cast<unsigned long long>(happened.far_rows),
      static_cast<unsigned long long>(happened.ended_pins),
      outrider::to_seconds(clock.now() - start));
  for (const std::string& failure : report->failures) std::printf("  %s\n", failure.c_str());
  if (happened.far_rows == 0) {
    std::printf("  NOT PROVED: no row's window began behind the first chunk of attention\n");
    return 1;
  }
  return report->tally.exact() ? 0 : 1;
}

bool use_gpu(uint32_t index, Options& options) {
  const auto gpu = outrider::kernels::open_cuda_ops(index, 1);
  if (!gpu) {
    std::fprintf(stderr, "outrider_exactness: %s\n", gpu.error().message.c_str());
    return false;
  }
  options.isas = {outrider::kernels::default_isa()};
  options.make_ops = [index](outrider::kernels::Isa) {
    return std::shared_ptr<outrider::kernels::Ops>(
        outrider::kernels::open_cuda_ops(index, 1).value());
  };
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  bool verbose = false;
  std::vector<std::string> isas;
  std::optional<uint32_t> gpu;
  CLI::App app{"Compares requests alone with the same requests in batches, bit for bit"};
  app.add_option("--model", options.model, "GGUF file")->required();
  app.add_option("--seed", options.seed, "of everything random");
  app.add_option("--count", options.count, "requests")->check(CLI::Range(1u, 1u << 20));
  app.add_option("--rounds", options.rounds, "batches that each request joins")
      ->check(CLI::Range(1u, 1u << 20));
  app.add_option("--batch", options.batch, "requests of one batch, at most")
      ->check(CLI::Range(1, 256));
  app.add_option("--isa", isas,
                 "instruction sets, fastest last; default: all of this machine but portable");
  app.add_option("--cuda", gpu, "number of a GPU that takes the CPU's place");
  app.add_flag("--verbose", verbose, "one line for each batch");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  for (const std::string& name : isas) {
    const auto all = outrider::kernels::available_isas();
    const auto isa = std::ranges::find(all, name, outrider::kernels::isa_name);
    if (isa == all.end()) {
      std::fprintf(stderr, "outrider_exactness: this machine has no instruction set %s\n",
                   name.c_str());
      return 2;
    }
    options.isas.push_back(*isa);
  }
  if (gpu && !use_gpu(*gpu, options)) return 2;
  return run(options, verbose);
}
