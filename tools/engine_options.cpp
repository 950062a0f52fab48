#include "tools/engine_options.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "base/check.hpp"
#include "base/cpu_count.hpp"
#include "base/limits.hpp"
#include "base/memory_limit.hpp"
#include "base/regular_file.hpp"
#include "base/system.hpp"
#include "base/utf8.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tools/command.hpp"
#include "tools/counted.hpp"
#include "tools/kv_store.hpp"
#include "tools/progress.hpp"
#include "tools/settings_rules.hpp"

namespace outrider::tools {
namespace {

Result<kernels::Isa> chosen_isa() {
  const char* wanted = std::getenv("OUTRIDER_ISA");
  if (wanted == nullptr || *wanted == '\0') return kernels::default_isa();
  std::string available;
  for (const kernels::Isa isa : kernels::available_isas()) {
    if (kernels::isa_name(isa) == wanted) return isa;
    available += (available.empty() ? "" : ", ") + std::string(kernels::isa_name(isa));
  }
  return fail(
      ErrorCode::invalid_argument,
      "OUTRIDER_ISA: \"" + std::string(wanted) + "\" is not one of this machine's " + available,
      "OUTRIDER_ISA");
}

}  // namespace

const std::vector<std::string>& engine_setting_names() {
  static const std::vector<std::string> names = {"model",
                                                 "device",
                                                 "threads",
                                                 "pin-threads",
                                                 "ctx",
                                                 "max-batch-tokens",
                                                 "decode-plan",
                                                 "decode-chunks",
                                                 "kv-kind",
                                                 "kv-memory-mb",
                                                 "block-tokens",
                                                 "local-window",
                                                 "prefix-caching",
                                                 "spec",
                                                 "spec-k",
                                                 "spec-depth-max",
                                                 "spec-disable-below-accept",
                                                 "weights-cache",
                                                 "kv-candidates",
                                                 "kv-gate-nll",
                                                 "kv-gate-ppl",
                                                 "kv-gate-needle-kl",
                                                 "kv-probe-prompt",
                                                 "kv-probe-decode",
                                                 "plan-dir",
                                                 "plan-max-age-s"};
  return names;
}

model::EngineOptions engine_options(const Settings& settings) {
  const auto number = [&](const char* name) { return static_cast<uint32_t>(settings.count(name)); };
  kernels::KvKinds kinds;  // where they are auto, tools/kv_plan sets them
  if (settings.text("kv-kind") != "auto") {
    const auto named = kernels::parse_kv_kinds(settings.text("kv-kind"));
    OUTRIDER_CHECK(named.ok(), "settings are checked when they are set");
    kinds = *named;
  }
  model::EngineOptions options;
  options.context_tokens = number("ctx");
  options.batch_tokens = number("max-batch-tokens");
  options.decode_plan.is_automatic = settings.text("decode-plan") == "auto";
  if (settings.text("decode-plan") == "fixed") {
    std::ranges::copy(settings.counts("decode-chunks"), options.decode_plan.rows.begin());
  }
  options.sequences = number("max-seqs");
  options.waiting = number("max-waiting");
  options.block_tokens = number("block-tokens");
  options.kv_memory_bytes = settings.count("kv-memory-mb") << 20;
  options.kv_kinds = kinds;
  options.local_window = number("local-window");
  options.prefix_caching = settings.text("prefix-caching") == "on";
  const uint32_t fixed = number("spec-k");
  options.speculation.ngram = settings.text("spec") == "auto" || settings.text("spec") == "ngram";
  options.speculation.fixed_depth = fixed > 0;
  options.speculation.depth_max = fixed > 0 ? fixed : number("spec-depth-max");
  if (settings.text("spec") == "off") options.speculation.depth_max = 0;
  options.speculation.accept_min = static_cast<float>(number("spec-disable-below-accept")) / 100.0f;
  return options;
}

std::string served_name(const Settings& settings, const std::string& path) {
  const std::string& given = settings.text("model-name");
  return given.empty() ? utf8_replace_invalid(std::filesystem::path(path).stem().string()) : given;
}

bool takes_draft_models(const Settings& settings) {
  return settings.text("spec") == "auto" || settings.text("spec") == "draft";
}

bool uses_draft_model(const Settings& settings) {
  return takes_draft_models(settings) && !settings.text("draft").empty();
}

/// Its KV kind is the default: another one may cost hints, and saves little of a small model.
model::EngineOptions draft_engine_options(const Settings& settings, uint64_t kv_memory_mb) {
  model::EngineOptions options;
  options.batch_tokens = static_cast<uint32_t>(settings.count("max-batch-tokens"));
  options.sequences = limits::draft_runs_max + static_cast<uint32_t>(settings.count("draft-rows"));
  options.waiting = static_cast<uint32_t>(settings.count("max-waiting"));
  options.block_tokens = static_cast<uint32_t>(settings.count("block-tokens"));
  options.kv_memory_bytes = kv_memory_mb << 20;
  options.prefix_caching = settings.text("prefix-caching") == "on";
  options.speculation.depth_max = 0;
  return options;
}

Result<std::string> cluster_secret(const Settings& settings) {
  std::string path = settings.text("cluster-secret-file");
  const std::string field = path.empty() ? "store-dir" : "cluster-secret-file";
  if (path.empty() && !settings.text("store-dir").empty()) {
    OUTRIDER_ASSIGN(path, secret_file(settings.text("store-dir")));
  }
  std::string secret;
  if (path.empty()) {
    for (int i = 0; i < 4; ++i) {
      const uint64_t bits = random_bits();
      secret.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
    return secret;
  }
  auto read = read_regular_file(path, limits::cluster_secret_bytes_max);
  const bool too_long = !read && read.error().code == ErrorCode::too_large;
  if (!read && !too_long) {
    return fail(ErrorCode::invalid_argument,
                field + ": cannot read a cluster secret from " + path + ": " + read.error().message,
                field);
  }
  if (read) secret = std::move(*read);
  secret.resize(secret.find_last_not_of(" \t\r\n") + 1);
  if (too_long || secret.size() < limits::cluster_secret_bytes_min) {
    return fail(ErrorCode::invalid_argument,
                field + ": a cluster secret has " +
                    std::to_string(limits::cluster_secret_bytes_min) + " to " +
                    std::to_string(limits::cluster_secret_bytes_max) + " bytes; " + path + " has " +
                    (too_long ? "more" : std::to_string(secret.size())),
                field);
  }
  return secret;
}

std::string draft_context_warning(uint64_t kv_memory_mb, uint64_t draft_context, uint64_t context) {
  return "draft-kv-memory-mb " + std::to_string(kv_memory_mb) +
         " MiB: the draft model's context is " + std::to_string(draft_context) + " of " +
         std::to_string(context) + " tokens; what is longer is not drafted for by it";
}

std::string context_warning(const Settings& settings, uint32_t context_tokens,
                            uint32_t model_context_tokens) {
  if (settings.count("ctx") != 0 || context_tokens >= model_context_tokens) return {};
  return "kv-memory-mb " + settings.text("kv-memory-mb") + " holds " +
         std::to_string(context_tokens) + " tokens: the context is cut to that from the model's " +
         std::to_string(model_context_tokens);
}

std::string pool_text(const Settings& settings, uint32_t blocks, uint32_t context_tokens) {
  const uint64_t block_tokens = settings.count("block-tokens");
  const uint64_t per_sequence = (context_tokens + block_tokens - 1) / block_tokens;
  std::string text =
      "KV pool: " + counted(blocks, "block") + " of " + std::to_string(block_tokens) + " tokens";
  // The engine's own bound (model/engine.cpp).
  if (blocks >= 2 * settings.count("max-seqs") * per_sequence) {
    text += ", twice what max-seqs " + settings.text("max-seqs") +
            " can use; the rest of kv-memory-mb " + settings.text("kv-memory-mb") + " is not taken";
  }
  return text;
}

ThreadPlan plan_threads(const Settings& settings) {
  const UsableCpus usable = usable_cpus();
  ThreadPlan plan;
  plan.threads = static_cast<uint32_t>(settings.count("threads"));
  const bool automatic = plan.threads == 0;
  if (automatic) plan.threads = usable.threads;
  if (plan.threads > usable.threads) {
    plan.warning = "threads: " + std::to_string(plan.threads) + " are more than auto would take, " +
                   std::to_string(usable.threads) + ": they wait for each other";
  }
  plan.text = "threads: " + std::to_string(plan.threads) + (automatic ? " (" : " as set (") +
              usable.why + "), pinning ";
  const std::string& mode = settings.text("pin-threads");
  BindingPlan binding = plan_binding(mode == "on"    ? CpuBinding::on
                                     : mode == "off" ? CpuBinding::off
                                                     : CpuBinding::automatic,
                                     usable.order, plan.threads);
  plan.cpus = std::move(binding.cpus);
  plan.text += binding.why;
  return plan;
}

const std::string& draft_device(const Settings& settings) {
  const std::string& device = settings.text("draft-device");
  return device == "same" ? settings.text("device") : device;
}

DraftThreads plan_draft_threads(const Settings& settings) {
  const uint32_t cores = usable_cpus().threads;
  const uint32_t taken = plan_threads(settings).threads;
  DraftThreads plan;
  plan.threads = static_cast<uint32_t>(settings.count("draft-threads"));
  if (plan.threads == 0) plan.threads = cores > taken ? cores - taken : 1;
  const std::string& device = settings.text("device");
  plan.competes =
      draft_device(settings) == device && (device != "cpu" || taken + plan.threads > cores);
  return plan;
}

uint64_t kv_host_bytes(const Settings& settings) {
  if (settings.text("kv-host-mb") != "auto") return settings.count("kv-host-mb") << 20;
  if (!gpu_of(settings.text("device"))) return 0;
  constexpr uint64_t k_pools = 4;
  constexpr uint64_t k_share = 4;
  return std::min(k_pools * (settings.count("kv-memory-mb") << 20), usable_memory() / k_share);
}

std::optional<uint32_t> gpu_of(const std::string& device) {
  constexpr std::string_view k_gpu = "cuda:";
  if (!device.starts_with(k_gpu)) return std::nullopt;
  return static_cast<uint32_t>(std::stoul(device.substr(k_gpu.size())));
}

namespace {

using Loaded = Result<std::shared_ptr<const model::LoadedModel>>;

/// The back end of the model, or of its draft model. Errors name the setting that names the device.
Result<std::unique_ptr<kernels::Ops>> open_ops(const Settings& settings, bool is_draft,
                                               kernels::Isa isa, const ThreadPlan& plan) {
  const auto gpu = gpu_of(is_draft ? draft_device(settings) : settings.text("device"));
  if (!gpu) return kernels::open_cpu_ops(plan.threads, isa, plan.cpus);
  auto ops = kernels::open_cuda_ops(*gpu, plan.threads, plan.cpus, is_draft);
  if (ops || !is_draft || settings.text("draft-device") == "same") return ops;
  Error error = ops.error();
  if (error.field == "device") {
    error.message = "draft-" + error.message;
    error.field = "draft-device";
  }
  return error;
}

/// Of the model that the setting of this name names, "model" or "draft".
Loaded load(const Settings& settings, const std::string& setting, ThreadPlan plan,
            const std::atomic<bool>* stop, const LoadWords& words) {
  const bool is_draft = setting == "draft";
  const auto path = resolve_model(settings.text(setting), setting.c_str());
  if (!path) return path.error();
  const auto isa = chosen_isa();
  if (!isa) return isa.error();
  std::vector<std::string> warnings;  // told when the bar is gone
  if (!plan.warning.empty()) warnings.push_back(plan.warning);
  if (!can_bind(plan.cpus)) {
    warnings.push_back("threads cannot be pinned: the system does not grant the CPUs");
    plan.cpus.clear();
  }
  auto opened = open_ops(settings, is_draft, *isa, plan);
  if (!opened) return opened.error();
  const std::shared_ptr<kernels::Ops> ops = std::move(opened).value();
  const auto load_file = [&] {
    ProgressBar bar("loading " + *path, words.inform);
    model::LoadOptions options;
    options.progress = [&](uint64_t done, uint64_t total) {
      bar.update(done, total);
      return stop == nullptr || !*stop;
    };
    options.cache_directory = settings.text("weights-cache");
    options.warn = [&](const std::string& text) { warnings.push_back(text); };
    return model::load_model(*path, ops, options);
  };
  auto model = load_file();
  for (const std::string& text : warnings) words.warn(text);
  if (const std::string& cache = settings.text("weights-cache"); model && !cache.empty()) {
    words.inform((*model)->weights.from_cache ? "packed weights from " + cache
                                              : "weights packed anew, for " + cache);
  }
  return model;
}

}  // namespace

Result<void> check_devices(const Settings& settings) {
  kernels::Isa isa{};
  OUTRIDER_ASSIGN(isa, chosen_isa());
  for (const bool is_draft : {false, true}) {
    if (is_draft && !uses_draft_model(settings)) continue;
    const auto ops = open_ops(settings, is_draft, isa, ThreadPlan{});
    if (!ops) return ops.error();
  }
  return {};
}

Loaded load_with_progress(const Settings& settings, const std::atomic<bool>* stop,
                          const LoadWords& words) {
  return load(settings, "model", plan_threads(settings), stop, words);
}

Loaded load_draft_with_progress(const Settings& settings, const std::atomic<bool>* stop,
                                const LoadWords& words) {
  ThreadPlan plan;
  plan.threads = plan_draft_threads(settings).threads;
  return load(settings, "draft", std::move(plan), stop, words);
}

Result<std::shared_ptr<const model::LoadedModel>> load_with_progress(const Settings& settings) {
  const auto say = [](const std::string& text) { std::cerr << "outrider: " << text << '\n'; };
  std::vector<std::string> warnings;
  OUTRIDER_ASSIGN(warnings, check_together(settings, Command::local));
  for (const std::string& text : warnings) say(text);
  return load_with_progress(settings, nullptr, {.inform = say, .warn = say});
}

}  // namespace outrider::tools
