/// Compares a model with its committed golden and prints one line of figures:
///   model_golden tests/golden/smollm2-135m.json models/smollm2-135m.gguf
/// Exit code 0: within the limits; 1: not, with one line for each broken limit; 2: cannot run.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tests/golden/golden_run.hpp"

namespace {

using outrider::ErrorCode;
using outrider::fail;
using outrider::Result;
namespace golden = outrider::golden;
namespace model = outrider::model;

struct Options {
  std::string golden_path;
  std::string model_path;
  uint32_t threads = 0;
  uint32_t batch_tokens = 256;
  std::string kv_kind = "fp16";
  std::optional<uint32_t> gpu;
};

Result<std::string> file_digest(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return fail(ErrorCode::io, "cannot read " + path);
  }
  outrider::Sha256 digest;
  std::vector<char> buffer(size_t{1} << 20);
  while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) ||
         stream.gcount() > 0) {
    digest.update(std::string_view(buffer.data(), static_cast<size_t>(stream.gcount())));
  }
  return outrider::to_hex(digest.finish());
}

Result<std::unique_ptr<model::Generator>> open(const Options& options,
                                               const model::EngineOptions& engine) {
  if (!options.gpu) {
    return model::Generator::open(options.model_path, engine, options.threads);
  }
  auto ops = outrider::kernels::open_cuda_ops(*options.gpu, std::max(1u, options.threads));
  if (!ops) {
    return ops.error();
  }
  const auto loaded = model::load_model(options.model_path, std::move(ops).value());
  if (!loaded) {
    return loaded.error();
  }
  return model::Generator::create(*loaded, engine);
}

Result<golden::Report> compare(const Options& options, const golden::GoldenFile& file) {
  const auto digest = file_digest(options.model_path);
  if (!digest) {
    return digest.error();
  }
  if (*digest != file.sha256) {
    return fail(ErrorCode::invalid_argument, options.model_path + " is not the file of the golden");
  }
  model::EngineOptions engine;
  engine.context_tokens = 2048;
  engine.batch_tokens = options.batch_tokens;
  engine.sequences = 4;
  engine.kv_memory_bytes = uint64_t{256} << 20;
  const auto kinds = outrider::kernels::parse_kv_kinds(options.kv_kind);
  if (!kinds) {
    return kinds.error();
  }
  engine.kv_kinds = *kinds;
  const auto generator = open(options, engine);
  if (!generator) {
    return generator.error();
  }
  return golden::run_golden(**generator, file);
}

int run(const Options& options) {
  const auto file = golden::read_golden(options.golden_path);
  if (!file) {
    std::fprintf(stderr, "model_golden: %s\n", file.error().message.c_str());
    return 2;
  }
  const outrider::SteadyClock clock;
  const outrider::TimePoint start = clock.now();
  const auto report = compare(options, *file);
  if (!report) {
    std::fprintf(stderr, "model_golden: %s\n", report.error().message.c_str());
    return 2;
  }
  const auto broken = golden::violations(*report, golden::Limits{});
  std::printf("%s: %s; %s; %.1f s\n", file->model.c_str(), broken.empty() ? "pass" : "FAIL",
              golden::summary(*report).c_str(), outrider::to_seconds(clock.now() - start));
  for (const std::string& sentence : broken) {
    std::printf("  %s\n", sentence.c_str());
  }
  return broken.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Compares a model with its committed golden"};
  app.add_option("golden", options.golden_path, "tests/golden/NAME.json")->required();
  app.add_option("model", options.model_path, "the GGUF file it was made from")->required();
  app.add_option("--threads", options.threads, "0: all");
  app.add_option("--batch-tokens", options.batch_tokens, "prefill chunk");
  app.add_option("--cuda", options.gpu, "number of a GPU that takes the CPU's place");
  app.add_option("--kv-kind", options.kv_kind, "of keys and values, as for outrider serve");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "model_golden: %s\nRun with --help for more.\n", error.what());
    return 2;
  }
  return run(options);
}
