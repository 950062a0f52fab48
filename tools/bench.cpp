#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/limits.hpp"
#include "base/system.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tools/bench_run.hpp"
#include "tools/command.hpp"
#include "tools/engine_options.hpp"
#include "tools/kv_plan.hpp"
#include "tools/number_list.hpp"
#include "tools/progress.hpp"
#include "tools/sampling_flags.hpp"
#include "tools/version.hpp"

namespace outrider::tools {
namespace {

struct BenchFlags {
  SettingFlags settings;
  BenchAxes axes;
  uint32_t repetitions = 3;
  bool json = false;
};

/// What the figures of a run depend on besides the tests.
struct Machine {
  std::string cpu = "unknown CPU";
  std::string features;  ///< of those that matter to the kernels, in the order of /proc/cpuinfo
};

/// Value of the first "name<spaces>: value" line.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == std::string::npos) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return {};
}

Machine this_machine() {
  Machine machine;
  if (auto name = proc_value("/proc/cpuinfo", "model name"); !name.empty()) machine.cpu = name;
  std::istringstream flags(proc_value("/proc/cpuinfo", "flags"));
  for (std::string flag; flags >> flag;) {
    if (!flag.starts_with("avx") && !flag.starts_with("amx") && flag != "fma" && flag != "f16c") {
      continue;
    }
    machine.features += (machine.features.empty() ? "" : " ") + flag;
  }
  return machine;
}

uint64_t resident_bytes() {
  return std::strtoull(proc_value("/proc/self/status", "VmRSS").c_str(), nullptr, 10) << 10;
}

/// "2026-01-31T09:30:00Z".
std::string utc_text(UnixTime time) {
  const std::time_t seconds = time.time_since_epoch().count();
  std::tm parts{};
  char text[32] = "";
  if (gmtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  return text;
}

/// Of a GGUF: the encoding that most of its weights have, and how many it has in all.
struct FileFacts {
  std::string quantisation;
  uint64_t parameters = 0;
};

Result<FileFacts> file_facts(const std::string& path) {
  const auto file = model::GgufFile::open(path);
  if (!file) return file.error();
  std::map<std::string_view, uint64_t> weights;
  FileFacts facts;
  for (const model::GgufTensor& tensor : file->tensors()) {
    const uint64_t count =
        tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];  // 1 where it has fewer
    weights[kernels::weight_type_info(tensor.type)->name] += count;
    facts.parameters += count;
  }
  const auto most = std::ranges::max_element(weights, {}, [](const auto& e) { return e.second; });
  if (most != weights.end()) facts.quantisation = most->first;
  return facts;
}

struct Loaded {
  std::shared_ptr<const model::LoadedModel> model;
  FileFacts facts;
  std::string started;
  std::string kv_kinds;
  double seconds = 0;
  uint64_t resident_bytes = 0;
};

nlohmann::ordered_json row_json(const BenchRow& row, const Loaded& loaded, const Machine& machine) {
  nlohmann::ordered_json out;
  out["test"] = row.bench.name();
  out["version"] = k_version;
  out["started"] = loaded.started;
  out["model"] = loaded.model->path;
  out["quantisation"] = loaded.facts.quantisation;
  out["parameters"] = loaded.facts.parameters;
  out["threads"] = loaded.model->ops->threads();
  out["prompt"] = row.bench.prompt;
  out["gen"] = row.bench.generate;
  out["kv_kind"] = loaded.kv_kinds;
  out["batch"] = row.bench.batch;
  out["depth"] = row.bench.depth;
  out["rows"] = static_cast<double>(row.bench.tokens()) / row.steps;
  out["tokens_per_s"] = row.tokens_per_s;
  out["samples_tokens_per_s"] = row.samples_per_s;
  out["min_tokens_per_s"] = row.least_per_s();
  out["max_tokens_per_s"] = row.most_per_s();
  out["stddev_tokens_per_s"] = row.deviation_per_s();
  out["ms_per_step"] = row.ms_per_step;
  out["share_of_limit"] = row.limit_share();
  if (row.note() != nullptr) out["share_of_limit_note"] = row.note();
  out["limit"] = row.bandwidth_bound() ? "bandwidth" : "compute";
  out["repetitions"] = row.repetitions;
  out["steps"] = row.steps;
  if (!row.bench.is_prefill()) {
    out["step_bytes"] = row.step_bytes;
    out["bytes_per_s"] = row.bytes_per_s;
    out["plain_read_bytes_per_s"] = row.plain_read_per_s;
    out["share_of_plain_read"] = row.read_share;
  }
  out["operations_per_s"] = row.operations_per_s;
  out["int16_dot_operations_per_s"] = row.dot16_per_s;
  out["share_of_int16_dot"] = row.dot16_share;
  out["int8_dot_operations_per_s"] = row.dot8_per_s;
  out["share_of_int8_dot"] = row.dot8_share;
  out["load_s"] = loaded.seconds;
  out["weights_from_cache"] = loaded.model->weights.from_cache;
  out["resident_bytes_after_load"] = loaded.resident_bytes;
  out["weight_file_bytes"] = loaded.model->weights.file_bytes;
  out["backend"] = loaded.model->ops->description();
  out["cpu"] = machine.cpu;
  out["cpu_features"] = machine.features;
  return out;
}

void print_head(const Loaded& loaded, const ModelCost& cost, const Machine& machine) {
  const auto mb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  std::printf("%s, %s, %.1f M parameters, %s, %s\n", loaded.model->name.c_str(),
              loaded.facts.quantisation.c_str(), static_cast<double>(loaded.facts.parameters) / 1e6,
              std::string(loaded.model->ops->description()).c_str(), machine.cpu.c_str());
  std::printf("outrider %s, %s\n", k_version, loaded.started.c_str());
  std::printf("%s\n", machine.features.c_str());
  std::printf(
      "loaded in %.2f s%s, %.0f MB resident (weights: %.0f MB in the file, %.0f MB read by "
      "a step), KV in %s\n\n",
      loaded.seconds, loaded.model->weights.from_cache ? " from the weights cache" : "",
      mb(loaded.resident_bytes), mb(loaded.model->weights.file_bytes), mb(cost.weight_bytes),
      loaded.kv_kinds.c_str());
  std::printf("%-16s %10s %17s %9s %7s %9s %8s %9s %9s\n", "test", "tokens/s", "least..most",
              "ms/step", "GB/s", "of a read", "Gop/s", "of int16", "of int8");
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f %%", share * 100);
  return text;
}

void print_row(const BenchRow& row) {
  char read[32] = "-";
  const bool decode = !row.bench.is_prefill();
  if (decode) std::snprintf(read, sizeof(read), "%.1f", row.bytes_per_s / 1e9);
  char spread[64];
  std::snprintf(spread, sizeof(spread), "%.1f..%.1f", row.least_per_s(), row.most_per_s());
  std::printf("%-16s %10.1f %17s %9.2f %7s %9s %8.0f %9s %9s\n", row.bench.name().c_str(),
              row.tokens_per_s, spread, row.ms_per_step, read,
              decode ? percent(row.read_share).c_str() : "-", row.operations_per_s / 1e9,
              percent(row.dot16_share).c_str(), percent(row.dot8_share).c_str());
  if (row.note() != nullptr) std::printf("  a share %s\n", row.note());
  std::fflush(stdout);
}

/// Leaves out, with a word on stderr, what does not fit the model's context.
std::vector<BenchCase> fitting_cases(const BenchAxes& axes, uint32_t context) {
  std::vector<BenchCase> cases;
  for (const BenchCase& bench : bench_cases(axes)) {
    if (bench.sequence_tokens() <= context) {
      cases.push_back(bench);
    } else {
      std::cerr << "outrider: " << bench.name() << " left out: " << bench.sequence_tokens()
                << " tokens, the model's context is " << context << '\n';
    }
  }
  return cases;
}

Result<void> run_cases(const BenchFlags& flags, BenchRunner& runner, const Loaded& loaded,
                       std::span<const BenchCase> cases) {
  const Machine machine = this_machine();
  if (!flags.json) print_head(loaded, runner.cost(), machine);
  for (const BenchCase& bench : cases) {
    std::vector<BenchSample> samples;
    {
      ProgressBar bar(bench.name());
      const auto progress = [&](uint64_t done, uint64_t total) { bar.update(done, total); };
      // The filling of a deep test warms up, too.
      if (bench.depth == 0) OUTRIDER_TRY(runner.run(bench, 1));
      OUTRIDER_ASSIGN(samples, runner.run(bench, flags.repetitions, progress));
    }
    const BenchRow row = bench_row(bench, runner.cost(), samples);
    if (flags.json) {
      if (&bench != &cases.front()) std::cout << ",\n";
      std::cout << row_json(row, loaded, machine).dump() << std::flush;
    } else {
      print_row(row);
    }
  }
  return {};
}

int bench(const BenchFlags& flags) {
  const auto settings = flags.settings.resolve();
  if (!settings) return report(settings.error());
  const SteadyClock clock;
  Loaded loaded;
  const TimePoint start = clock.now();
  auto model = load_with_progress(*settings);
  if (!model) return report(model.error());
  loaded.model = *model;
  loaded.seconds = to_seconds(clock.now() - start);
  loaded.resident_bytes = resident_bytes();
  loaded.started = utc_text(wall_time());
  if (auto facts = file_facts(loaded.model->path)) {
    loaded.facts = *facts;
  } else {
    return report(facts.error());
  }
  const auto cases = fitting_cases(flags.axes, loaded.model->config.context_length);
  if (cases.empty()) {
    return report(fail(ErrorCode::invalid_argument, "bench: no test is left to run", "depth"));
  }
  model::EngineOptions options = engine_options(*settings);
  if (const auto planned = plan_kv_kinds(loaded.model, *settings, options); !planned) {
    return report(planned.error());
  }
  loaded.kv_kinds = kernels::kv_kinds_text(options.kv_kinds);
  for (const BenchCase& bench : cases) {
    if (bench.batch <= options.batch_tokens) continue;
    return report(fail(ErrorCode::invalid_argument,
                       "max-batch-tokens: " + std::to_string(options.batch_tokens) +
                           " rows a step are fewer than the sequences of " + bench.name(),
                       "max-batch-tokens"));
  }
  auto runner = BenchRunner::create(loaded.model, options, cases, flags.repetitions, clock);
  if (!runner) return report(runner.error());
  if (flags.json) std::cout << "[\n";
  const auto done = run_cases(flags, **runner, loaded, cases);
  if (flags.json) std::cout << "\n]" << std::endl;
  if (!done) return report(done.error());
  return cases.size() == bench_cases(flags.axes).size() ? k_exit_done : k_exit_failed;
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("bench", "Speed of a model here, beside this machine's limits");
  auto flags = std::make_shared<BenchFlags>();
  BenchAxes& axes = flags->axes;
  const auto tokens = in_range(IntegerRange{0, limits::model_context_tokens_max});
  command->add_option("--prompt", axes.prompt, "tokens of the prefill tests; 0: none")
      ->type_name("N")
      ->check(tokens)
      ->capture_default_str();
  command->add_option("--gen", axes.generate, "tokens of the decode tests; 0: none")
      ->type_name("N")
      ->check(tokens)
      ->capture_default_str();
  add_number_list(*command, "--depth", axes.depths,
                  IntegerRange{0, limits::model_context_tokens_max},
                  "tokens that are already there, comma separated [0]");
  add_number_list(*command, "--batch", axes.batches, IntegerRange{1, limits::sequences_max},
                  "sequences of the decode tests, comma separated [1]");
  command->add_option("--repetitions", flags->repetitions, "of each test; medians are printed")
      ->type_name("N")
      ->check(in_range(IntegerRange{1, 1000}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "an array with an object for each test");
  flags->settings.add(
      *command, {"model", "device", "threads", "pin-threads", "max-batch-tokens", "decode-plan",
                 "decode-chunks", "local-window", "kv-kind", "block-tokens", "weights-cache"});
  command->footer(
      "Tests have llama-bench's names: pp512 prefills 512 tokens, tg64x8 decodes 64 tokens in 8\n"
      "sequences at once, \"@4096\" does so after 4096 tokens.\n"
      "of a read: weights and KV of a step, by the time of a plain read of as many bytes that\n"
      "alternates with the test. Repetitions of a deep decode test follow each other in sequences\n"
      "that are filled once; the middle one starts at the depth.\n"
      "of int16, of int8: two operations for each weight and token, by the rate of this machine's\n"
      "integer dot products in the same run. Attention is not counted.\n"
      "Exit code 1: a test was left out, because the model's context is too short for it.\n"
      "Example: outrider bench --model smollm2-135m --depth 0,1024 --batch 1,8,32");
  command->callback([flags, &action] { action = [flags] { return bench(*flags); }; });
}

}  // namespace outrider::tools
