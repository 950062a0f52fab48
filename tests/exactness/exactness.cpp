/// Runs random requests alone and inside random batches, and compares every token and logprob bit:
///   outrider_exactness --model models/smollm2-135m.gguf --seed 1 --count 300
/// Exit code 0: no difference; 1: some, with seed and circumstances, or windows that no prompt was
/// long enough for, or, of a thousand requests or more, a disturbance that none met; 2: cannot run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "tests/exactness/harness.hpp"

namespace {

using outrider::exactness::Disturbance;
using outrider::exactness::Disturbances;
using outrider::exactness::k_disturbances;
using outrider::exactness::Options;

/// So many requests must meet every disturbance.
constexpr uint64_t k_many = 1000;

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
  for (const Disturbance& each : k_disturbances) {
    std::printf("  %llu %s\n", static_cast<unsigned long long>(happened.*each.count), each.name);
  }
  std::printf("  %.1f s\n", outrider::to_seconds(clock.now() - start));
  for (const std::string& failure : report->failures) std::printf("  %s\n", failure.c_str());
  bool proved = true;
  for (const Disturbance& each : k_disturbances) {
    const bool must_happen =
        each.count == &Disturbances::far_rows || report->tally.requests >= k_many;
    if (!must_happen || happened.*each.count > 0) continue;
    std::printf("  NOT PROVED: 0 %s\n", each.name);
    proved = false;
  }
  if (!proved) return 1;
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
