#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "kernels/ops.hpp"
#include "model/engine.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Names of the settings that a command with its own engine takes.
const std::vector<std::string>& engine_setting_names();

model::EngineOptions engine_options(const Settings& settings);

/// What clients and other processes call the model at `path`.
std::string served_name(const Settings& settings, const std::string& path);

/// Whether models may draft, of whatever process; whether one is to be loaded here.
bool takes_draft_models(const Settings& settings);
bool uses_draft_model(const Settings& settings);
/// The sizes of a draft model's engine with a KV pool of so many MiB.
model::EngineOptions draft_engine_options(const Settings& settings, uint64_t kv_memory_mb);

/// What the file that the settings name holds, without white space at its end. Where they name
/// none: the store's own, or without a store random bytes, as then nothing outlives the process.
Result<std::string> cluster_secret(const Settings& settings);

/// Of a draft model whose context is shorter than its target's.
std::string draft_context_warning(uint64_t kv_memory_mb, uint64_t draft_context, uint64_t context);

/// Says both figures when the KV pool, and not --ctx, bounds the context; else empty.
std::string context_warning(const Settings& settings, uint32_t context_tokens,
                            uint32_t model_context_tokens);

/// The size of the KV pool; says why, when it is less than the memory would hold.
std::string pool_text(const Settings& settings, uint32_t blocks, uint32_t context_tokens);

/// How many compute threads, on which CPUs if they are bound, and a line for people on why.
struct ThreadPlan {
  uint32_t threads = 1;
  std::vector<uint32_t> cpus;
  std::string text;
  std::string warning;  ///< or empty
};
ThreadPlan plan_threads(const Settings& settings);

/// Those of the draft model: what the model itself leaves. `competes`: they share cores with its
/// own.
struct DraftThreads {
  uint32_t threads = 1;
  bool competes = false;
};
DraftThreads plan_draft_threads(const Settings& settings);

/// As `device` writes it.
const std::string& draft_device(const Settings& settings);
/// Of a device "cuda:N"; none: it is "cpu".
std::optional<uint32_t> gpu_of(const std::string& device);
/// Of the host, for what the KV pool gives up.
uint64_t kv_host_bytes(const Settings& settings);
/// Whether the devices that the settings name are there: a model takes long to read.
Result<void> check_devices(const Settings& settings);

/// Hears what people should know: what goes on, and what did not work as asked for.
struct LoadWords {
  std::function<void(const std::string&)> inform;
  std::function<void(const std::string&)> warn;
};

/// Loads the model that the settings name, with its progress. `stop` is looked at between tensors;
/// null: never.
Result<std::shared_ptr<const model::LoadedModel>> load_with_progress(const Settings& settings,
                                                                     const std::atomic<bool>* stop,
                                                                     const LoadWords& words);
/// Likewise the draft model.
Result<std::shared_ptr<const model::LoadedModel>> load_draft_with_progress(
    const Settings& settings, const std::atomic<bool>* stop, const LoadWords& words);
/// For commands that talk to a person: tells stderr, also what `check_together` says.
Result<std::shared_ptr<const model::LoadedModel>> load_with_progress(const Settings& settings);

}  // namespace outrider::tools
