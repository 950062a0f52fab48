#include <kj/async-unix.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/sampling_ranges.hpp"
#include "base/system.hpp"
#include "tools/command.hpp"
#include "tools/counted.hpp"
#include "tools/load_run.hpp"
#include "tools/number_list.hpp"
#include "tools/progress.hpp"
#include "tools/sampling_flags.hpp"
#include "tools/server_json.hpp"
#include "tools/shown.hpp"

namespace outrider::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t k_requests_max = 1'000'000;
constexpr uint32_t k_requests_per_stream = 10;
/// Every model of today has more ids; few give the lowest ones to anything but bytes and words.
constexpr uint32_t k_vocabulary_unknown = 16'384;

/// Share of the time above which the table says that the client itself was late.
constexpr double k_client_waiting_told = 0.02;

constexpr NumberRange k_slo_ms{0, 1e9, true};

struct LoadFlags {
  std::string url;
  std::string model;
  std::string api_key;
  std::vector<uint32_t> concurrency;
  std::vector<double> rates;
  uint32_t requests = 0;
  uint32_t prompt_tokens = 128;
  uint32_t shared_tokens = 0;
  uint32_t output_tokens = 64;
  std::string prompts = "ids";
  uint32_t vocabulary = 0;
  int64_t warm_up = -1;
  uint64_t seed = 0;
  double slo_ttft_ms = 200;
  double slo_tpot_ms = 50;
  std::optional<double> slo_e2e_ms;
  uint32_t timeout_s = 600;
  bool json = false;

  Slo slo() const { return {.ttft_ms = slo_ttft_ms, .tpot_ms = slo_tpot_ms, .e2e_ms = slo_e2e_ms}; }
};

/// The server under test, as the first requests found it.
class Target {
 public:
  Target(const LoadFlags& flags, HttpStreams& streams)
      : flags_(flags), streams_(streams), model_(flags.model), vocabulary_(flags.vocabulary) {}

  /// Asks for the model's name and what else the flags leave open, then whether the server takes
  /// `ignore_eos`.
  Result<void> probe(Random& random);
  /// A request with a prompt that no other has; it begins as those since the last `begin` do.
  Result<std::string> body(Random& random);
  /// From here on prompts begin with other shared tokens.
  void begin(Random& random);
  const std::string& model() const { return model_; }
  bool ignores_eos() const { return ignore_eos_; }

 private:
  struct Reply {
    HttpEnd end;
    std::string text;
    nlohmann::json json;
  };
  Reply ask(const std::string& path, const std::string& body);
  Error refused(const std::string& path, const Reply& reply) const;

  const LoadFlags& flags_;
  HttpStreams& streams_;
  std::string model_;
  uint32_t vocabulary_;
  std::vector<uint32_t> shared_;  ///< First tokens of all prompts.
  bool ignore_eos_ = true;
};

Target::Reply Target::ask(const std::string& path, const std::string& body) {
  Reply reply;
  streams_.start(
      path, body, [&](unsigned, std::string_view bytes) { reply.text.append(bytes); },
      [&](const HttpEnd& end) { reply.end = end; });
  streams_.run();
  reply.json = nlohmann::json::parse(reply.text, nullptr, false);
  return reply;
}

Error Target::refused(const std::string& path, const Reply& reply) const {
  if (streams_.interrupted()) return fail(ErrorCode::cancelled, "interrupted");
  std::string what = reply.end.failure.empty() ? "HTTP " + std::to_string(reply.end.status) + " " +
                                                     shown(reply.text.substr(0, 500))
                                               : reply.end.detail;
  return fail(ErrorCode::unavailable, flags_.url + path + ": " + what);
}

Result<void> Target::probe(Random& random) {
  if (model_.empty() || vocabulary_ == 0) {
    const Reply reply = ask("/v1/models", "");
    if (model_.empty() && (reply.end.status != 200 || !reply.end.failure.empty())) {
      return refused("/v1/models", reply);
    }
    const auto& list = member_of(reply.json, "data");
    const bool listed = list.is_array() && !list.empty() && list[0].is_object();
    if (!listed && model_.empty()) {
      return fail(ErrorCode::unavailable,
                  flags_.url + "/v1/models lists no model; is it still loading?");
    }
    const auto entry = listed ? list[0] : nlohmann::json::object();
    if (model_.empty()) model_ = text_of(entry, "id", "default");
    if (vocabulary_ == 0) vocabulary_ = count_of(member_of(entry, "meta"), "n_vocab");
    if (vocabulary_ == 0) vocabulary_ = k_vocabulary_unknown;
  }
  begin(random);
  Result<std::string> request = body(random);
  if (!request) return request.error();
  Reply reply = ask("/v1/completions", *request);
  if (reply.end.status == 400 && reply.text.find("ignore_eos") != std::string::npos) {
    ignore_eos_ = false;
    OUTRIDER_ASSIGN(request, body(random));
    reply = ask("/v1/completions", *request);
  }
  if (reply.end.status != 200 || !reply.end.failure.empty()) {
    return refused("/v1/completions", reply);
  }
  return {};
}

void Target::begin(Random& random) {
  shared_.resize(flags_.shared_tokens);
  for (uint32_t& id : shared_) id = random.below(vocabulary_);
}

Result<std::string> Target::body(Random& random) {
  Json out;
  out["model"] = model_;
  std::vector<uint32_t> ids(flags_.prompt_tokens);
  for (uint32_t& id : ids) id = random.below(vocabulary_);
  std::copy(shared_.begin(), shared_.end(), ids.begin());
  out["prompt"] = ids;
  if (flags_.prompts == "text") {
    const Reply reply = ask("/detokenize", Json{{"model", model_}, {"tokens", ids}}.dump());
    if (reply.end.status != 200 || !reply.json.is_object()) return refused("/detokenize", reply);
    const char* name = reply.json.contains("prompt") ? "prompt" : "content";
    out["prompt"] = text_of(reply.json, name);
  }
  out["max_tokens"] = flags_.output_tokens;
  out["temperature"] = 0;
  out["stream"] = true;
  out["stream_options"] = {{"include_usage", true}};
  if (ignore_eos_) out["ignore_eos"] = true;
  return out.dump();
}

struct CellResult {
  LoadCell cell;
  LoadSummary summary;
  LoadOutcome outcome;
  bool interrupted = false;  ///< These are the requests that had ended.

  double of_duration(double seconds) const {
    return summary.duration_s > 0 ? seconds / summary.duration_s : 0;
  }
};

Result<CellResult> run_cell(const LoadFlags& flags, const LoadCell& cell, Target& target,
                            HttpStreams& streams, Random& random) {
  const SteadyClock clock;
  const uint32_t count = flags.requests != 0 ? flags.requests
                         : cell.rate == 0    ? cell.streams * k_requests_per_stream
                                             : 100;
  const uint32_t warm_up = flags.warm_up >= 0 ? static_cast<uint32_t>(flags.warm_up)
                           : cell.rate == 0   ? cell.streams
                                              : 1;
  std::vector<std::string> bodies(warm_up + count);
  for (size_t i = 0; i < bodies.size(); ++i) {
    if (i == 0 || i == warm_up) target.begin(random);  // What is warm must not show in the figures.
    OUTRIDER_ASSIGN(bodies[i], target.body(random));
  }
  const auto nothing_measured = [&] {
    return fail(ErrorCode::cancelled, cell.name() + ": interrupted before anything was measured");
  };
  const std::span<const std::string> all(bodies);
  if (warm_up != 0) {
    const LoadCell warm = {.streams = cell.rate == 0 ? cell.streams : 1};
    run_load(streams, clock, warm, all.first(warm_up), random);
    if (streams.interrupted()) return nothing_measured();
  }
  CellResult result{.cell = cell};
  ProgressBar bar(cell.name());
  result.outcome = run_load(streams, clock, cell, all.subspan(warm_up), random,
                            [&](size_t ended) { bar.update(ended, count); });
  if (result.outcome.records.empty()) return nothing_measured();
  result.summary = summarise(result.outcome.records, flags.slo());
  result.interrupted = streams.interrupted();
  return result;
}

std::string mismatch(const LoadFlags& flags, const LoadSummary& summary) {
  return mismatch_text(summary, {.prompt = flags.prompt_tokens, .answer = flags.output_tokens});
}

Json or_null(bool there, Json value) {
  return there ? std::move(value) : Json();
}

/// Null where nothing was measured.
Json distribution_json(const Distribution& d) {
  if (d.count == 0) return nullptr;
  return {{"count", d.count},      {"mean", rounded(d.mean)}, {"p50", rounded(d.p50)},
          {"p90", rounded(d.p90)}, {"p95", rounded(d.p95)},   {"p99", rounded(d.p99)},
          {"max", rounded(d.max)}};
}

Json result_json(const LoadFlags& flags, const CellResult& result, const Target& target) {
  const LoadSummary& summary = result.summary;
  Json out;
  out["load"] = result.cell.name();
  const bool closed = result.cell.rate == 0;
  out["concurrency"] = or_null(closed, result.cell.streams);
  out["rate"] = or_null(!closed, result.cell.rate);
  out["url"] = flags.url;
  out["model"] = target.model();
  out["isl"] = flags.prompt_tokens;
  out["isl_shared"] = flags.shared_tokens;
  out["osl"] = flags.output_tokens;
  out["seed"] = flags.seed;
  out["ignore_eos"] = target.ignores_eos();
  out["requests"] = result.outcome.records.size();
  out["interrupted"] = result.interrupted;
  out["completed"] = summary.completed;
  out["errors"] = summary.errors;
  out["duration_s"] = rounded(summary.duration_s);
  out["requests_per_s"] = rounded(summary.requests_per_s);
  out["output_tokens_per_s"] = rounded(summary.output_tokens_per_s);
  out["prompt_tokens"] = summary.prompts.sum;
  out["prompt_tokens_mean"] =
      or_null(summary.prompts.requests > 0, rounded(summary.prompts.mean()));
  out["cached_tokens"] = summary.cached_tokens;
  out["output_tokens"] = summary.answers.sum;
  out["output_tokens_mean"] =
      or_null(summary.answers.requests > 0, rounded(summary.answers.mean()));
  out["draft_tokens"] = summary.draft_tokens;
  out["accepted_tokens"] = summary.accepted_tokens;
  const std::string other = mismatch(flags, summary);
  out["mismatch"] = or_null(!other.empty(), other);
  out["goodput_per_s"] = rounded(summary.goodput_per_s);
  out["slo"] = {{"ttft_ms", flags.slo_ttft_ms}, {"tpot_ms", flags.slo_tpot_ms}};
  if (flags.slo_e2e_ms) out["slo"]["e2e_ms"] = *flags.slo_e2e_ms;
  out["ttft_ms"] = distribution_json(summary.ttft_ms);
  out["tpot_ms"] = distribution_json(summary.tpot_ms);
  out["itl_ms"] = distribution_json(summary.itl_ms);
  out["e2e_ms"] = distribution_json(summary.e2e_ms);
  out["late_ms"] = distribution_json(summary.late_ms);
  out["client_running"] = rounded(result.of_duration(result.outcome.client_cpu_s));
  out["client_waiting"] = rounded(result.of_duration(result.outcome.client_wait_s));
  return out;
}

void print_head(const LoadFlags& flags, const Target& target) {
  std::printf("%s at %s: prompts of %u tokens (%s), answers of %u%s, seed %llu\n",
              shown(target.model()).c_str(), flags.url.c_str(), flags.prompt_tokens,
              flags.prompts.c_str(), flags.output_tokens,
              target.ignores_eos() ? "" : " or fewer: the server takes no ignore_eos",
              static_cast<unsigned long long>(flags.seed));
  std::printf("times in ms, p50 / p99; good: TTFT <= %g and TPOT <= %g", flags.slo_ttft_ms,
              flags.slo_tpot_ms);
  if (flags.slo_e2e_ms) std::printf(" and E2E <= %g", *flags.slo_e2e_ms);
  std::printf("\n\n");
  std::printf("%-13s %6s %6s %7s %8s  %17s %17s %17s %19s %7s\n", "load", "ok", "failed", "req/s",
              "tokens/s", "TTFT", "TPOT", "ITL", "E2E", "good/s");
}

void print_row(const LoadFlags& flags, const CellResult& result) {
  const LoadSummary& summary = result.summary;
  const auto both = [](const Distribution& d) {
    char text[48] = "-";
    if (d.count == 0) return std::string(text);
    std::snprintf(text, sizeof(text), "%.1f / %.1f", d.p50, d.p99);
    return std::string(text);
  };
  std::printf("%-13s %6llu %6llu %7.2f %8.1f  %17s %17s %17s %19s %7.2f\n",
              result.cell.name().c_str(), static_cast<unsigned long long>(summary.completed),
              static_cast<unsigned long long>(result.outcome.records.size() - summary.completed),
              summary.requests_per_s, summary.output_tokens_per_s, both(summary.ttft_ms).c_str(),
              both(summary.tpot_ms).c_str(), both(summary.itl_ms).c_str(),
              both(summary.e2e_ms).c_str(), summary.goodput_per_s);
  if (const auto other = mismatch(flags, summary); !other.empty()) {
    std::printf("  not what was asked: %s\n", other.c_str());
  }
  if (summary.cached_tokens > 0) {
    std::printf("  the server had %llu of %llu prompt tokens in its cache\n",
                static_cast<unsigned long long>(summary.cached_tokens),
                static_cast<unsigned long long>(summary.prompts.sum));
  }
  if (summary.draft_tokens > 0) {
    std::printf("  of %llu drafted tokens %llu were accepted\n",
                static_cast<unsigned long long>(summary.draft_tokens),
                static_cast<unsigned long long>(summary.accepted_tokens));
  }
  if (result.interrupted) std::printf("  interrupted: of the requests that had ended\n");
  const double waiting = result.of_duration(result.outcome.client_wait_s);
  if (waiting > k_client_waiting_told) {
    std::printf("  this client waited for a CPU %.0f %% of the time, which its times include\n",
                waiting * 100);
  }
  for (const auto& [kind, count] : summary.errors) {
    std::printf("  %llu x %s: %s\n", static_cast<unsigned long long>(count), kind.c_str(),
                result.outcome.details.at(kind).c_str());
  }
  std::fflush(stdout);
}

std::vector<LoadCell> cells_of(const LoadFlags& flags) {
  std::vector<LoadCell> cells;
  for (const uint32_t streams : flags.concurrency) cells.push_back({.streams = streams});
  for (const double rate : flags.rates) cells.push_back({.rate = rate});
  if (cells.empty()) cells.push_back({.streams = 1});
  return cells;
}

int load(const LoadFlags& flags) {
  if (flags.shared_tokens > flags.prompt_tokens) {
    return report(fail(ErrorCode::invalid_argument,
                       "--isl-shared " + std::to_string(flags.shared_tokens) +
                           " is more than --isl " + std::to_string(flags.prompt_tokens)));
  }
  auto streams =
      HttpStreams::create(flags.url, flags.api_key, std::chrono::seconds(flags.timeout_s));
  if (!streams) return report(streams.error());
  (*streams)->end_at_interrupt();
  Random random(flags.seed);
  Target target(flags, **streams);
  const auto failed = [&](const Error& error) {
    const int code = report(error);
    return (*streams)->interrupted() ? k_exit_interrupted : code;
  };
  if (const auto ready = target.probe(random); !ready) return failed(ready.error());
  if (!flags.json) print_head(flags, target);
  bool whole = true;
  for (const LoadCell& cell : cells_of(flags)) {
    if (cell.rate == 0 && flags.requests != 0 && flags.requests < cell.streams) {
      std::cerr << "outrider: " << cell.name() << ": only " << counted(flags.requests, "request")
                << ", so no more run at once (--requests)\n";
    }
    const auto result = run_cell(flags, cell, target, **streams, random);
    if (!result) return failed(result.error());
    if (flags.json) {
      std::cout << result_json(flags, *result, target).dump() << std::endl;
    } else {
      print_row(flags, *result);
    }
    if (result->interrupted) return k_exit_interrupted;
    // Without ignore_eos the model may end an answer.
    const uint32_t least = target.ignores_eos() ? flags.output_tokens : 0;
    if (const auto text = shortfall_text(result->summary, least); !text.empty()) {
      std::cerr << "outrider: " << cell.name() << ": " << text << '\n';
      whole = false;
    }
  }
  return whole ? k_exit_done : k_exit_failed;
}

void add_load_flags(CLI::App& command, LoadFlags& flags) {
  const auto count = [](int64_t high) { return in_range(IntegerRange{1, high}); };
  command.add_option("--url", flags.url, "the server, http://host:port")
      ->type_name("URL")
      ->required();
  command.add_option("--model", flags.model, "as the server names it [its first]")
      ->type_name("NAME");
  command.add_option("--api-key", flags.api_key, "API key, when the server wants one")
      ->type_name("KEY");
  auto* closed = add_number_list(command, "--concurrency", flags.concurrency,
                                 IntegerRange{1, limits::connections_max},
                                 "closed loop: streams at once, comma separated [1]");
  add_number_list(command, "--rate", flags.rates, NumberRange{1e-3, 1e5},
                  "open loop: requests/s on average (Poisson), comma separated")
      ->excludes(closed);
  command.add_option("--requests", flags.requests, "of each load [10 a stream; open loop 100]")
      ->type_name("N")
      ->check(count(k_requests_max));
  command.add_option("--isl", flags.prompt_tokens, "prompt tokens")
      ->type_name("N")
      ->check(count(limits::model_context_tokens_max))
      ->capture_default_str();
  command
      .add_option("--isl-shared", flags.shared_tokens,
                  "first prompt tokens that all requests of a load share [0]")
      ->type_name("N")
      ->check(in_range(IntegerRange{0, limits::model_context_tokens_max}));
  command.add_option("--osl", flags.output_tokens, "output tokens")
      ->type_name("N")
      ->check(count(limits::model_context_tokens_max))
      ->capture_default_str();
  command.add_option("--prompts", flags.prompts, "random token ids, or their text by /detokenize")
      ->type_name("ids|text")
      ->check(CLI::Validator(
          [](const std::string& word) {
            return word == "ids" || word == "text" ? "" : "\"" + word + "\" is not ids or text";
          },
          ""))
      ->capture_default_str();
  command.add_option("--vocab", flags.vocabulary, "ids are below it [the server's, or 16384]")
      ->type_name("N")
      ->check(count(limits::vocabulary_max));
  command
      .add_option("--warmup", flags.warm_up,
                  "requests before each load, not counted [one a stream]")
      ->type_name("N")
      ->check(in_range(IntegerRange{0, k_requests_max}));
  command
      .add_option("--seed", flags.seed,
                  "of prompts and arrivals [drawn: no server has seen such prompts]")
      ->type_name("N")
      ->check(in_range(ranges::seed));
  command.add_option("--slo-ttft", flags.slo_ttft_ms, "bound of a good request")
      ->type_name("MS")
      ->check(in_range(k_slo_ms))
      ->capture_default_str();
  command.add_option("--slo-tpot", flags.slo_tpot_ms, "bound of a good request")
      ->type_name("MS")
      ->check(in_range(k_slo_ms))
      ->capture_default_str();
  command.add_option("--slo-e2e", flags.slo_e2e_ms, "bound of a good request [none]")
      ->type_name("MS")
      ->check(in_range(k_slo_ms));
  command.add_option("--timeout", flags.timeout_s, "most that a request may take")
      ->type_name("S")
      ->check(count(86'400))
      ->capture_default_str();
  command.add_flag("--json", flags.json, "one JSON object per load and line, all percentiles");
}

}  // namespace

void add_load(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("load", "Load an OpenAI server and measure its answers");
  auto flags = std::make_shared<LoadFlags>();
  add_load_flags(*command, *flags);
  command->footer(
      "TTFT: first text - send. E2E: last event - send. TPOT: (E2E - TTFT) / (tokens - 1).\n"
      "ITL: gaps between events with text. Percentiles are of the pooled samples of a load.\n"
      "Each request has a connection of its own, and opening it counts.\n"
      "Exit code 1 if a request failed or had a shorter answer than asked; errors are counted by\n"
      "kind. Ctrl-C: what is measured.\n"
      "Example: outrider load --url http://127.0.0.1:8080 --concurrency 1,8,32");
  command->callback([flags, command, &action] {
    if (command->count("--seed") == 0)
      flags->seed = random_bits() >> 12;  // exact in any JSON number
    action = [flags] {
      kj::UnixEventPort::captureSignal(SIGINT);  // ends the load, with what is measured
      return load(*flags);
    };
  });
}

}  // namespace outrider::tools
