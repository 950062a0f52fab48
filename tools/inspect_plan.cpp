#include "tools/inspect_plan.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "kernels/kv_kind_flags.hpp"
#include "tools/shown.hpp"

namespace outrider::tools {
namespace {

namespace fs = std::filesystem;

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

std::string time_text(UnixTime at) {
  const auto seconds = static_cast<std::time_t>(at.time_since_epoch().count());
  char text[32] = "";
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  }
  return text;
}

/// When a start measures anew. A plan does not know the settings of that start: the defaults.
std::string holds_text(const StoredKvPlan& stored) {
  const auto most = static_cast<int64_t>(Settings().count("plan-max-age-s"));
  const auto holds = [&](bool has_store) {
    const int64_t seconds = kv_plan_holds_s(stored.plan, most, has_store);
    return "until " + time_text(stored.made + std::chrono::seconds(seconds)) + " (" +
           std::to_string(seconds) + " s)";
  };
  const std::string with_store = holds(true);
  const std::string without = holds(false);
  return "holds " + with_store + " by the default plan-max-age-s" +
         (without == with_store ? "" : ", without a store-dir " + without) +
         "; for another model, machine or other settings that it depends on a start measures "
         "anew\n";
}

std::string figures(const model::KvPlan& plan, const model::KvCandidate& candidate) {
  std::string text = formatted("  %-22s%9llu%8llu", kv_kinds_text(candidate.kinds).c_str(),
                               static_cast<unsigned long long>(candidate.token_bytes),
                               static_cast<unsigned long long>(candidate.context_bytes >> 20));
  if (candidate.quality) {
    text += formatted("%10.5f%+9.4f%9.4f%11.4f", candidate.quality->nll,
                      candidate.quality->nll - plan.baseline.nll, candidate.quality->mean_kl,
                      candidate.quality->needle_kl);
  } else {
    text += formatted("%10s%9s%9s%11s", "-", "-", "-", "-");
  }
  text += candidate.step ? formatted("%10.3f", to_ms(*candidate.step)) : formatted("%10s", "-");
  return text + "  " + std::string(kv_verdict_name(candidate.verdict)) + ": " + candidate.reason +
         "\n";
}

constexpr const char* k_extension = ".kv-plan";

Result<void> add_plans_in(const std::string& directory, std::vector<std::string>& files) {
  const auto before = static_cast<std::ptrdiff_t>(files.size());
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().extension() == k_extension) files.push_back(at->path().string());
  }
  if (error) return fail(ErrorCode::io, "cannot read " + directory + ": " + error.message());
  std::sort(files.begin() + before, files.end());
  return {};
}

/// A file, what is in a directory, or what a store keeps in its own.
Result<std::vector<std::string>> plan_files(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || fs::path(path).extension() == k_extension) {
    return std::vector<std::string>{path};
  }
  std::vector<std::string> files;
  OUTRIDER_TRY(add_plans_in(path, files));
  const std::string of_store = (fs::path(path) / "plans").string();
  const bool is_store = fs::is_directory(of_store, ignored);
  if (is_store) OUTRIDER_TRY(add_plans_in(of_store, files));
  if (!files.empty()) return files;
  return fail(ErrorCode::not_found,
              "no *.kv-plan in " + path + (is_store ? " or " + of_store : ""));
}

int inspect_plan(const std::string& path, bool json) {
  const auto files = plan_files(path);
  if (!files) return report(files.error());
  int code = k_exit_done;
  auto plans = nlohmann::ordered_json::array();
  for (const std::string& file : *files) {
    const auto stored = read_kv_plan(file);
    if (!stored) {
      std::cerr << "outrider: " << file << ": " << stored.error().message << '\n';
      code = k_exit_failed;
    } else if (json) {
      plans.push_back(nlohmann::ordered_json::parse(kv_plan_json(*stored)));
    } else {
      std::cout << plan_text(file, *stored);
    }
  }
  if (json) std::cout << plans.dump(2) << '\n';
  return code;
}

}  // namespace

std::string plan_text(const std::string& path, const StoredKvPlan& stored) {
  const model::KvPlan& plan = stored.plan;
  std::string text =
      path + "\nmodel " + shown(stored.model) + " on " + shown(stored.device) + ", measured " +
      time_text(stored.made) + ", timings vary by " + kv_spread_text(plan) + "\n" +
      holds_text(stored) + "fingerprint " + shown(stored.fingerprint) + "\n" +
      formatted(
          "%llu tokens of context in %llu MiB; gates: NLL %+g, PPL x%g, needle "
          "KL %g; fp16: NLL %.5f\n\n",
          static_cast<unsigned long long>(plan.context_tokens),
          static_cast<unsigned long long>(plan.kv_memory_bytes >> 20), plan.gates.nll_delta,
          plan.gates.ppl_ratio, plan.gates.needle_kl, plan.baseline.nll) +
      formatted("  %-22s%9s%8s%10s%9s%9s%11s%10s  verdict\n", "kinds", "B/token", "MiB", "NLL",
                "rise", "mean KL", "needle KL", formatted("ms@%u", plan.depth).c_str());
  for (const auto& candidate : plan.candidates) text += figures(plan, candidate);
  return text;
}

void add_inspect_plan(CLI::App& inspect, Action& action) {
  auto* plan = inspect.add_subcommand("plan", "What kv-kind auto measured, chose and rejected");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  plan->add_option("plan", *path, "a plan, or what --plan-dir or --store-dir was")
      ->type_name("FILE|DIR")
      ->required();
  plan->add_flag("--json", *json, "as one JSON array");
  plan->footer("Exit code 1 if a file is damaged. Example: outrider inspect plan data/kv");
  plan->callback(
      [path, json, &action] { action = [path, json] { return inspect_plan(*path, *json); }; });
}

}  // namespace outrider::tools
