#include "tools/kv_plan.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "base/check.hpp"
#include "base/limits.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "model/kv_probe.hpp"

namespace outrider::tools {
namespace {

namespace fs = std::filesystem;

/// The processor's name, as the system has it; two machines of one name measure much the same.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      return line.substr(std::min(line.find(':') + 2, line.size()));
    }
  }
  return "unknown processor";
}

model::KvPlanRequest plan_request(const Settings& settings, const model::EngineOptions& options) {
  auto candidates = kernels::parse_kv_kinds_list(settings.text("kv-candidates"));
  OUTRIDER_CHECK(candidates.ok(), "settings are checked when they are set");
  model::KvPlanRequest request;
  request.candidates = std::move(*candidates);
  request.gates = {.nll_delta = settings.decimal("kv-gate-nll"),
                   .ppl_ratio = settings.decimal("kv-gate-ppl"),
                   .needle_kl = settings.decimal("kv-gate-needle-kl")};
  request.probe.prompt_tokens = static_cast<uint32_t>(settings.count("kv-probe-prompt"));
  request.probe.decode_tokens = static_cast<uint32_t>(settings.count("kv-probe-decode"));
  request.probe.local_window = static_cast<uint32_t>(settings.count("local-window"));
  request.context_tokens = options.context_tokens;
  request.kv_memory_bytes = options.kv_memory_bytes;
  request.block_tokens = options.block_tokens;
  return request;
}

std::string plan_path(const Settings& settings, const model::LoadedModel& model,
                      const std::string& fingerprint) {
  const std::string directory = kv_plan_directory(settings);
  if (directory.empty()) return {};
  const std::string stem = fs::path(model.path).stem().string();
  return (fs::path(directory) / (stem + '-' + fingerprint.substr(0, 16) + ".kv-plan")).string();
}

bool is_noisy(const model::KvPlan& plan) {
  return plan.spread() > model::k_noisy_spread;
}

/// The files that were written last, the newest first.
std::vector<std::string> newest_plans(const std::string& directory,
                                      const std::function<bool()>& go_on) {
  std::multimap<fs::file_time_type, std::string, std::greater<>> found;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (go_on && !go_on()) break;
    std::error_code gone;
    if (at->path().extension() != ".kv-plan" || !at->is_regular_file(gone)) continue;
    found.emplace(at->last_write_time(gone), at->path().string());
    if (found.size() > limits::kv_plans_read_max) found.erase(std::prev(found.end()));
  }
  std::vector<std::string> files;
  for (auto& [time, path] : found) files.push_back(std::move(path));
  return files;
}

/// Of the model's plans the one that was kept last, if it is among the newest that are there.
std::optional<StoredKvPlan> last_plan(const std::string& directory, const std::string& model,
                                      const std::function<bool()>& go_on) {
  for (const std::string& path : newest_plans(directory, go_on)) {
    if (go_on && !go_on()) break;
    auto plan = read_kv_plan(path);
    if (plan && plan->model == model) return std::move(*plan);
  }
  return std::nullopt;
}

/// What a new plan costs: blocks of other kinds stay in the store, but are not found.
std::string lost_blocks_text(const Settings& settings, const model::LoadedModel& model,
                             const kernels::KvKinds& chosen, const std::function<bool()>& go_on) {
  const std::string& store = settings.text("store-dir");
  std::error_code ignored;
  if (store.empty() || !fs::exists(store + "/db", ignored)) return {};
  const auto last = last_plan(kv_plan_directory(settings), model.name, go_on);
  if (!last || last->plan.chosen()->kinds == chosen) return {};
  const std::string before = kernels::kv_kinds_text(last->plan.chosen()->kinds);
  return "KV plan: blocks that " + store + " has of the last plan's KV kind, " + before +
         ", are not found with " + kernels::kv_kinds_text(chosen) + "; --kv-kind " + before +
         " finds them";
}

/// Why the plan cannot be used now; empty: it can.
std::string why_stale(const StoredKvPlan& stored, const std::string& fingerprint,
                      const Settings& settings, UnixTime now) {
  if (stored.fingerprint != fingerprint) return "of another model, machine or settings";
  const auto age = (now - stored.made).count();
  const auto most = static_cast<int64_t>(settings.count("plan-max-age-s"));
  if (age < 0) return "made in the future";
  const int64_t holds = kv_plan_holds_s(stored.plan, most, !settings.text("store-dir").empty());
  if (holds == 0 || age < holds) return {};
  return std::to_string(age) + " s old" +
         (age >= most ? " (plan-max-age-s)"
                      : ", and its timings varied by " + kv_spread_text(stored.plan));
}

}  // namespace

std::string kv_plan_directory(const Settings& settings) {
  const std::string& store = settings.text("store-dir");
  return settings.text("plan-dir").empty() && !store.empty() ? store + "/plans"
                                                             : settings.text("plan-dir");
}

int64_t kv_plan_holds_s(const model::KvPlan& plan, int64_t most, bool has_store) {
  return is_noisy(plan) && !has_store ? std::min(most, k_noisy_plan_max_age_s) : most;
}

std::string kv_plan_line(const model::KvPlan& plan) {
  const model::KvCandidate* chosen = plan.chosen();
  OUTRIDER_CHECK(chosen != nullptr);
  std::string rejected;
  for (const model::KvCandidate& candidate : plan.candidates) {
    if (candidate.verdict != model::KvVerdict::poor &&
        candidate.verdict != model::KvVerdict::over_budget) {
      continue;
    }
    rejected += (rejected.empty() ? "; rejected " : "; ") +
                kernels::kv_kinds_text(candidate.kinds) + " (" + candidate.reason + ")";
  }
  return "KV kind: " + kernels::kv_kinds_text(chosen->kinds) + ", " + chosen->reason + rejected;
}

std::string kv_spread_text(const model::KvPlan& plan) {
  return std::to_string(std::lround((plan.spread() - 1) * 100)) + " %" +
         (is_noisy(plan) ? ": the machine was busy" : "");
}

Result<void> plan_kv_kinds(const std::shared_ptr<const model::LoadedModel>& model,
                           const Settings& settings, const KvPlanWorld& world,
                           model::EngineOptions& options) {
  if (settings.text("kv-kind") != "auto") return {};
  const model::KvPlanRequest request = plan_request(settings, options);
  const std::string processor = processor_name();
  const std::string fingerprint = to_hex(model::kv_plan_fingerprint(*model, request, processor));
  const std::string path = plan_path(settings, *model, fingerprint);
  const auto use = [&](const model::KvPlan& plan, const std::string& source) {
    options.kv_kinds = plan.chosen()->kinds;
    world.inform(kv_plan_line(plan) + " [" + source + "]");
  };
  std::error_code ignored;
  if (!path.empty() && fs::exists(path, ignored)) {
    auto stored = read_kv_plan(path);
    const std::string fault =
        stored ? why_stale(*stored, fingerprint, settings, world.now) : stored.error().message;
    if (fault.empty()) {
      stored->plan.kv_memory_bytes = request.kv_memory_bytes;  // the same candidates fit it
      OUTRIDER_TRY(choose_kv(stored->plan));
      use(stored->plan, path);
      return {};
    }
    world.warn("KV plan " + path + ": " + fault + "; measuring anew");
  }
  const TimePoint start = world.clock.now();
  auto plan = model::make_kv_plan(model, request, world.clock, world.go_on);
  if (!plan) return plan.error();
  std::ostringstream source;
  source << std::fixed << std::setprecision(1) << "measured in "
         << to_seconds(world.clock.now() - start) << " s, timings vary by "
         << kv_spread_text(*plan);
  if (path.empty()) {
    use(*plan, source.str());
    return {};
  }
  const std::string lost = lost_blocks_text(settings, *model, plan->chosen()->kinds, world.go_on);
  const auto written =
      write_kv_plan(path, {.model = model->name,
                           .device = processor + ", " + std::string(model->ops->description()),
                           .fingerprint = fingerprint,
                           .made = world.now,
                           .plan = *plan});
  use(*plan, source.str() + (written ? "; kept in " + path : ""));
  if (!written) {
    world.warn("KV plan: " + written.error().message + "; not kept: each start measures anew");
  }
  if (!lost.empty()) world.warn(lost);
  return {};
}

Result<void> plan_kv_kinds(const std::shared_ptr<const model::LoadedModel>& model,
                           const Settings& settings, model::EngineOptions& options) {
  const auto say = [](const std::string& text) { std::cerr << "outrider: " << text << '\n'; };
  const SteadyClock clock;
  return plan_kv_kinds(
      model, settings,
      {.clock = clock, .now = wall_time(), .go_on = {}, .inform = say, .warn = say}, options);
}

}  // namespace outrider::tools
