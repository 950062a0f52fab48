#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/regular_file.hpp"
#include "gateway/json_body.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tools/kv_plan.hpp"

namespace outrider::tools {
namespace {

using nlohmann::ordered_json;

namespace fs = std::filesystem;

constexpr int k_format = 1;

ordered_json quality_json(const model::KvQuality& quality) {
  return {{"nll", quality.nll}, {"mean_kl", quality.mean_kl}, {"needle_kl", quality.needle_kl}};
}

/// JSON has no NaN: null.
double number_from(const ordered_json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

model::KvQuality quality_from(const ordered_json& json) {
  return {.nll = number_from(json.at("nll")),
          .mean_kl = number_from(json.at("mean_kl")),
          .needle_kl = number_from(json.at("needle_kl"))};
}

ordered_json candidate_json(const model::KvCandidate& candidate) {
  ordered_json json = {{"kinds", kernels::kv_kinds_text(candidate.kinds)},
                       {"verdict", kv_verdict_name(candidate.verdict)},
                       {"reason", candidate.reason},
                       {"token_bytes", candidate.token_bytes},
                       {"context_bytes", candidate.context_bytes}};
  if (candidate.quality) json["quality"] = quality_json(*candidate.quality);
  if (candidate.step) json["step_ns"] = candidate.step->count();
  if (candidate.step) json["step_spread"] = candidate.spread;
  return json;
}

Result<model::KvCandidate> candidate_from(const ordered_json& json) {
  const auto kinds = kernels::parse_kv_kinds(json.at("kinds").get<std::string>());
  if (!kinds) return kinds.error();
  model::KvCandidate candidate;
  candidate.kinds = *kinds;
  candidate.token_bytes = json.at("token_bytes").get<uint64_t>();
  candidate.context_bytes = json.at("context_bytes").get<uint64_t>();
  if (json.contains("quality")) candidate.quality = quality_from(json.at("quality"));
  if (json.contains("step_ns")) {
    candidate.step = Duration(json.at("step_ns").get<int64_t>());
    if (*candidate.step <= Duration(0)) return fail(ErrorCode::corrupt, "a step without time");
    candidate.spread = json.value("step_spread", 1.0);  // plans of before have none
    if (!(candidate.spread >= 1)) return fail(ErrorCode::corrupt, "a spread below 1");
  }
  return candidate;
}

ordered_json plan_json(const StoredKvPlan& stored) {
  const model::KvPlan& plan = stored.plan;
  auto candidates = ordered_json::array();
  for (const auto& candidate : plan.candidates) candidates.push_back(candidate_json(candidate));
  return {{"format", k_format},
          {"model", stored.model},
          {"device", stored.device},
          {"fingerprint", stored.fingerprint},
          {"made", stored.made.time_since_epoch().count()},
          {"chosen", plan.chosen() ? kernels::kv_kinds_text(plan.chosen()->kinds) : ""},
          {"context_tokens", plan.context_tokens},
          {"kv_memory_bytes", plan.kv_memory_bytes},
          {"depth", plan.depth},
          {"gates",
           {{"nll_delta", plan.gates.nll_delta},
            {"ppl_ratio", plan.gates.ppl_ratio},
            {"needle_kl", plan.gates.needle_kl}}},
          {"baseline", quality_json(plan.baseline)},
          {"candidates", std::move(candidates)}};
}

/// Of the whole file but for itself.
std::string checksum(const ordered_json& json) {
  return to_hex(sha256(json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)));
}

Result<StoredKvPlan> plan_from(const ordered_json& json) {
  StoredKvPlan stored;
  json.at("model").get_to(stored.model);
  json.at("device").get_to(stored.device);
  json.at("fingerprint").get_to(stored.fingerprint);
  stored.made = UnixTime(std::chrono::seconds(json.at("made").get<uint32_t>()));
  model::KvPlan& plan = stored.plan;
  json.at("context_tokens").get_to(plan.context_tokens);
  json.at("kv_memory_bytes").get_to(plan.kv_memory_bytes);
  json.at("depth").get_to(plan.depth);
  plan.gates = {.nll_delta = json.at("gates").at("nll_delta").get<double>(),
                .ppl_ratio = json.at("gates").at("ppl_ratio").get<double>(),
                .needle_kl = json.at("gates").at("needle_kl").get<double>()};
  plan.baseline = quality_from(json.at("baseline"));
  for (const ordered_json& entry : json.at("candidates")) {
    auto candidate = candidate_from(entry);
    if (!candidate) return candidate.error();
    plan.candidates.push_back(std::move(*candidate));
  }
  OUTRIDER_TRY(choose_kv(plan));
  if (kernels::kv_kinds_text(plan.chosen()->kinds) != json.at("chosen").get<std::string>()) {
    return fail(ErrorCode::corrupt, "its figures lead to another choice");
  }
  return stored;
}

}  // namespace

std::string kv_plan_json(const StoredKvPlan& stored) {
  ordered_json json = plan_json(stored);
  json["sha256"] = checksum(json);
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// The checksum is of the values, so they are parsed before it can be looked at: as hostile text.
Result<StoredKvPlan> parse_kv_plan(std::string_view text) {
  gateway::JsonBudget budget;
  auto parsed = gateway::parse_json_body(text, budget, "the file");
  if (!parsed) return fail(ErrorCode::corrupt, "not a KV plan: " + parsed.error().message);
  ordered_json& json = *parsed;
  if (!json.is_object() || !json.contains("sha256") || !json["sha256"].is_string()) {
    return fail(ErrorCode::corrupt, "not a KV plan");
  }
  const std::string sum = json["sha256"];
  json.erase("sha256");
  if (sum != checksum(json)) return fail(ErrorCode::corrupt, "damaged or edited");
  try {
    if (json.at("format") != k_format) return fail(ErrorCode::corrupt, "of another format");
    auto stored = plan_from(json);
    if (stored) return stored;
    return fail(ErrorCode::corrupt, stored.error().message);
  } catch (const nlohmann::json::exception& error) {
    return fail(ErrorCode::corrupt, error.what());
  }
}

Result<StoredKvPlan> read_kv_plan(const std::string& path) {
  const auto text = read_regular_file(path, limits::kv_plan_bytes_max);
  if (text) return parse_kv_plan(*text);
  if (text.error().code == ErrorCode::too_large) {
    return fail(ErrorCode::corrupt, "not a KV plan: " + text.error().message);
  }
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return text.error();
  return fail(ErrorCode::invalid_argument,
              "a directory in a plan's place: no plan can be kept under this name until it is "
              "removed");
}

Result<void> write_kv_plan(const std::string& path, const StoredKvPlan& stored) {
  const std::string part = path + ".part-" + std::to_string(::getpid());
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  std::error_code absent;
  fs::remove(part, absent);  // of a process with this id that was killed
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file << kv_plan_json(stored) << std::flush;
  if (!error && file) fs::rename(part, path, error);
  if (!file || error) {
    const std::string why = error ? error.message() : std::strerror(errno);
    fs::remove(part, error);
    return fail(ErrorCode::io, "cannot write " + path + ": " + why);
  }
  return {};
}

}  // namespace outrider::tools
