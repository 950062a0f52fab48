// main() of every fuzz target where libFuzzer is not linked: replays a corpus, then runs seeded
// mutations of it. A crash prints the command that repeats it.
//
//   fuzz_NAME [--runs N | --seconds N] [--seed S] [--first I] [--save FILE] CORPUS...
//
// Run I depends on the corpus, S and I only, so `--seed S --first I --runs 1` repeats it alone;
// --save writes its input to a file before it runs, which libFuzzer or a debugger can then take.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.hpp"
#include "tests/fuzz/mutate.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
/// Present in builds with sanitizers only.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using outrider::Random;
using outrider::fuzz::Input;

/// A single input that runs longer than this counts as hanging.
constexpr unsigned k_input_seconds_max = 60;

struct Options {
  uint64_t runs = 0;
  uint64_t seconds = 0;
  std::optional<uint64_t> seed;
  uint64_t first = 0;
  std::string save;
  std::vector<std::string> corpus;
};

/// What runs now, for the crash report. Plain memory: signal handlers read it.
struct Current {
  char text[512];
  size_t length = 0;
};
Current current;

void describe(const std::string& text) {
  current.length = std::min(text.size(), sizeof(current.text));
  std::memcpy(current.text, text.data(), current.length);
}

void report() {
  constexpr std::string_view k_before = "\nfuzz: failed in ";
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, k_before.data(), k_before.size());
  written = write(STDERR_FILENO, current.text, current.length);
  written = write(STDERR_FILENO, "\n", 1);
}

extern "C" void on_signal(int number) {
  report();
  if (number == SIGALRM) _exit(1);
  signal(number, SIG_DFL);
  raise(number);
}

void install_handlers() {
  signal(SIGABRT, on_signal);
  signal(SIGALRM, on_signal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(report);  // the sanitizer keeps its own SIGSEGV handler
    return;
  }
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, on_signal);
}

[[noreturn]] void usage(const char* program) {
  std::fprintf(stderr,
               "usage: %s [--runs N | --seconds N] [--seed S] [--first I] [--save FILE] "
               "CORPUS...\n",
               program);
  std::exit(2);
}

uint64_t number_of(const char* program, std::string_view text) {
  if (text.empty() || text.size() > 19 ||
      text.find_first_not_of("0123456789") != std::string_view::npos) {
    usage(program);
  }
  return std::stoull(std::string(text));
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with("--")) {
      options.corpus.emplace_back(argument);
      continue;
    }
    if (++i == argc) usage(argv[0]);
    if (argument == "--save") {
      options.save = argv[i];
      continue;
    }
    const uint64_t number = number_of(argv[0], argv[i]);
    if (argument == "--runs") {
      options.runs = number;
    } else if (argument == "--seconds") {
      options.seconds = number;
    } else if (argument == "--seed") {
      options.seed = number;
    } else if (argument == "--first") {
      options.first = number;
    } else {
      usage(argv[0]);
    }
  }
  return options;
}

Input read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::fprintf(stderr, "fuzz: cannot read %s\n", path.c_str());
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Files and the files of folders, in order of names, so that a seed means the same everywhere.
std::vector<std::filesystem::path> corpus_files(const std::vector<std::string>& places) {
  std::vector<std::filesystem::path> files;
  for (const std::string& place : places) {
    if (!std::filesystem::is_directory(place)) {
      files.emplace_back(place);
      continue;
    }
    std::vector<std::filesystem::path> inside;
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      if (entry.is_regular_file()) inside.push_back(entry.path());
    }
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

void run_input(const Input& input) {
  alarm(k_input_seconds_max);
  // An exact heap copy, so that ASan sees a read of one byte too many.
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  alarm(0);
}

/// Run `index` has a generator of its own.
Random generator(uint64_t seed, uint64_t index) {
  return Random(seed * 0x9E3779B97F4A7C15u + index);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  install_handlers();

  std::vector<Input> corpus;
  for (const auto& file : corpus_files(options.corpus)) {
    corpus.push_back(read_file(file));
    describe("the corpus file " + file.string());
    run_input(corpus.back());
  }
  std::printf("fuzz: %zu corpus files replayed\n", corpus.size());

  const uint64_t seed = options.seed.value_or(std::random_device{}());
  const auto begin = std::chrono::steady_clock::now();
  const auto is_over = [&](uint64_t done) {
    if (options.seconds == 0) return done >= options.runs;
    return std::chrono::steady_clock::now() - begin >= std::chrono::seconds(options.seconds);
  };
  std::printf("fuzz: seed %llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  uint64_t done = 0;
  for (; !is_over(done); ++done) {
    const uint64_t index = options.first + done;
    Random random = generator(seed, index);
    const Input input = outrider::fuzz::mutate(corpus, random);
    if (!options.save.empty()) {
      std::ofstream(options.save, std::ios::binary)
          .write(reinterpret_cast<const char*>(input.data()),
                 static_cast<std::streamsize>(input.size()));
    }
    describe("a mutation; repeat it with --seed " + std::to_string(seed) + " --first " +
             std::to_string(index) + " --runs 1 and the same corpus");
    run_input(input);
  }
  std::printf("fuzz: %llu mutated inputs, no finding\n", static_cast<unsigned long long>(done));
  return 0;
}
