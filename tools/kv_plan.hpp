#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/system.hpp"
#include "model/engine.hpp"
#include "model/kv_policy.hpp"
#include "model/loaded_model.hpp"
#include "tools/settings.hpp"

/// `--kv-kind auto`: plans are measured once and kept as JSON files, one for each model, machine
/// and the settings that it depends on. A file is believed only if it is whole, its fingerprint is
/// the wanted one, and its figures lead to the choice that it names.
namespace outrider::tools {

struct StoredKvPlan {
  std::string model;        ///< for people
  std::string device;       ///< likewise: processor, instruction set, threads
  std::string fingerprint;  ///< hexadecimal
  UnixTime made{};
  model::KvPlan plan;  ///< chosen
};

std::string kv_plan_json(const StoredKvPlan& stored);
/// `corrupt` for anything that `kv_plan_json` did not write.
Result<StoredKvPlan> parse_kv_plan(std::string_view text);
/// Of a regular file of limits::kv_plan_bytes_max at most.
Result<StoredKvPlan> read_kv_plan(const std::string& path);
/// Replaces the file at once, or not at all; makes the directory.
Result<void> write_kv_plan(const std::string& path, const StoredKvPlan& stored);

/// What has to be known besides the settings.
struct KvPlanWorld {
  const Clock& clock;
  UnixTime now{};
  std::function<bool()> go_on;                     ///< false ends the probe
  std::function<void(const std::string&)> inform;  ///< hears what was chosen and why
  std::function<void(const std::string&)> warn;    ///< hears what is wrong with a file
};

/// Where plans are kept: `plan-dir`, or beside the blocks that are found with their kinds only,
/// where the store does not look; empty: nowhere.
std::string kv_plan_directory(const Settings& settings);

/// Where `kv-kind` is auto: sets the kinds of `options` by the plan that is kept, or by a new one,
/// which is kept then. Else does nothing.
Result<void> plan_kv_kinds(const std::shared_ptr<const model::LoadedModel>& model,
                           const Settings& settings, const KvPlanWorld& world,
                           model::EngineOptions& options);
/// For commands that talk to a person: the machine's clocks, stderr.
Result<void> plan_kv_kinds(const std::shared_ptr<const model::LoadedModel>& model,
                           const Settings& settings, model::EngineOptions& options);

/// "KV kinds: k=q8_0,v=q4_0 (…)"
std::string kv_plan_line(const model::KvPlan& plan);

/// What the timings of a plan varied by, "3 %" or "210 %: the machine was busy".
std::string kv_spread_text(const model::KvPlan& plan);

/// A plan that was timed on a busy machine is old after this, unless there is a store: with other
/// kinds nothing would be found of the blocks that it has.
inline constexpr int64_t k_noisy_plan_max_age_s = 3600;

/// Seconds for which a plan holds where plan-max-age-s is `most`; 0: always.
int64_t kv_plan_holds_s(const model::KvPlan& plan, int64_t most, bool has_store);

}  // namespace outrider::tools
