#include "tools/config_check.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/comma_list.hpp"
#include "base/sampling_ranges.hpp"
#include "gateway/api_keys.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "model/gguf.hpp"
#include "model/tokenizer.hpp"
#include "model/transformer.hpp"
#include "tools/cluster_access.hpp"
#include "tools/command.hpp"
#include "tools/engine_options.hpp"
#include "tools/kv_store.hpp"
#include "tools/parse_number.hpp"
#include "tools/settings_rules.hpp"
#include "tools/tenant_quotas.hpp"

namespace outrider::tools {
namespace {

/// Of an address that the settings have checked; port 0 for "off".
struct Address {
  std::string_view host;
  uint16_t port = 0;

  explicit Address(std::string_view text) {
    const size_t colon = text.rfind(':');
    if (colon == text.npos) return;
    parse_number(text.substr(colon + 1), IntegerRange{0, UINT16_MAX}, port);
    host = text.substr(0, colon);
    if (host == "localhost") host = "127.0.0.1";
  }
  bool is_everywhere() const {
    return host.empty() || host == "*" || host == "0.0.0.0" || host == "[::]";
  }
};

Result<void> check_addresses(const Settings& settings) {
  constexpr const char* k_names[] = {"http", "rpc", "cluster"};
  for (const char* name : k_names) {
    const Address address(settings.text(name));
    if (address.port == 0) continue;  // off, or the system chooses
    for (const char* other : k_names) {
      if (std::string_view(other) == name) break;
      const Address taken(settings.text(other));
      const bool apart =
          address.host != taken.host && !address.is_everywhere() && !taken.is_everywhere();
      if (address.port != taken.port || apart) continue;
      return fail(ErrorCode::invalid_argument,
                  std::string(name) + ": \"" + settings.text(name) + "\" is the port of " + other +
                      ", \"" + settings.text(other) + "\"",
                  name);
    }
  }
  return {};
}

namespace fs = std::filesystem;

/// Where even root makes no file.
bool is_of_the_kernel(const fs::path& path) {
  struct statfs system {};
  return ::statfs(path.c_str(), &system) == 0 &&
         (system.f_type == PROC_SUPER_MAGIC || system.f_type == SYSFS_MAGIC);
}

/// What is there, of a directory and those above it, must be a directory that can be written to.
Result<void> check_directory(const Setting& setting) {
  std::error_code ignored;
  fs::path path = fs::absolute(setting.value, ignored);
  const auto is_link = [&] { return fs::is_symlink(fs::symlink_status(path, ignored)); };
  while (!fs::exists(path, ignored) && !is_link() && path.has_relative_path()) {
    path = path.parent_path();
  }
  if (!fs::exists(path, ignored) && is_link()) {
    return fail(ErrorCode::invalid_argument,
                setting.name + ": \"" + path.string() + "\" leads nowhere: is its disk mounted?",
                setting.name);
  }
  const bool is_directory = fs::is_directory(path, ignored);
  if (is_directory && is_of_the_kernel(path)) {
    return fail(ErrorCode::invalid_argument,
                setting.name + ": \"" + path.string() + "\" is the kernel's, no place for files",
                setting.name);
  }
  if (is_directory && ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + path.string() + "\" " +
                  (is_directory ? std::string("cannot be written to: ") + std::strerror(errno)
                                : "is not a directory"),
              setting.name);
}

/// Of a file with a secret or keys, or a directory with texts.
void check_privacy(const char* setting, const std::string& path,
                   std::vector<std::string>& warnings) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || (status.st_mode & S_IRWXO) == 0) return;
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return;
  char mode[16];
  std::snprintf(mode, sizeof(mode), "%o", status.st_mode & 0777U);
  const bool is_directory = S_ISDIR(status.st_mode);
  // An opening of the store makes directories of its own user private.
  const bool is_mended = is_directory && status.st_uid == ::geteuid();
  warnings.push_back(
      std::string(setting) + ": \"" + path + "\" is open to all users (mode " + mode + ")" +
      (is_mended
           ? " until the next start, which makes it 700"
           : std::string("; chmod ") + (is_directory ? "700" : "600") + " keeps it to its owner"));
}

/// The store makes a secret of its own at its first start; looking must not.
Result<void> check_secret(const Settings& settings, std::vector<std::string>& warnings) {
  const std::string& directory = settings.text("store-dir");
  const std::string& file = settings.text("cluster-secret-file");
  const bool own = file.empty();
  const std::string path = own ? own_secret_path(directory) : file;
  if (own && (directory.empty() || !has_own_secret(directory))) return {};
  check_privacy(own ? "store-dir" : "cluster-secret-file", path, warnings);
  const auto secret = cluster_secret(settings);
  return secret ? Result<void>() : secret.error();
}

/// A store's ids hang on its secret.
void check_lost_secret(const Settings& settings, std::vector<std::string>& warnings) {
  const std::string& directory = settings.text("store-dir");
  const bool own = !directory.empty() && settings.text("cluster-secret-file").empty();
  std::error_code ignored;
  if (!own || has_own_secret(directory) || !fs::exists(directory + "/db/CURRENT", ignored)) return;
  warnings.push_back("store-dir: \"" + directory +
                     "\" holds a KV store, but not its cluster-secret: with a new one nothing of "
                     "what it holds is found");
}

void check_store_user(const Settings& settings, std::vector<std::string>& warnings) {
  const std::string& directory = settings.text("store-dir");
  const pid_t user = directory.empty() ? 0 : store_user(directory);
  if (user == 0) return;
  warnings.push_back("store-dir: \"" + directory + "\" is in use by " +
                     (user > 0 ? "process " + std::to_string(user) : "another process") +
                     ": a server that starts beside it stores and finds nothing there (in_use)");
}

/// With keys there may be several tenants, and all of them write to one store.
void check_store_shares(const Settings& settings, std::vector<std::string>& warnings) {
  if (settings.text("store-dir").empty() || settings.text("api-key-file").empty()) return;
  if (settings.count("store-quota-mb") != 0) return;
  if (!trimmed(settings.text("store-tenant-quota-mb")).empty()) return;
  warnings.emplace_back(
      "store-dir: there are API keys, but neither store-quota-mb nor store-tenant-quota-mb: one "
      "tenant's blocks may push out another's");
}

/// Warns of less than so many blocks.
constexpr uint64_t k_quota_blocks_told = 16;

Result<void> check_quota_sizes(const Settings& settings, uint64_t block_bytes,
                               std::vector<std::string>& warnings) {
  if (settings.text("store-dir").empty()) return {};
  const auto check = [&](const std::string& whose, uint64_t mb) {
    const uint64_t blocks = (mb << 20) / block_bytes;
    if (blocks >= k_quota_blocks_told) return;
    warnings.push_back(whose + std::to_string(mb) + " MiB hold " + std::to_string(blocks) +
                       " of this model's blocks, each " + settings.text("block-tokens") +
                       " tokens in " + std::to_string(block_bytes) + " bytes");
  };
  if (const uint64_t mb = settings.count("store-quota-mb"); mb != 0) check("store-quota-mb: ", mb);
  std::map<std::string, uint64_t> quotas;
  OUTRIDER_ASSIGN(quotas, parse_tenant_quotas(settings.text("store-tenant-quota-mb")));
  for (const auto& [tenant, mb] : quotas) check("store-tenant-quota-mb: " + tenant + "'s ", mb);
  return {};
}

/// Tokens that a KV pool holds, as model/engine.cpp has it: one block more stays zero.
uint64_t tokens_held(uint64_t memory_mb, uint64_t block_tokens, uint64_t block_bytes) {
  return (std::max((memory_mb << 20) / block_bytes, uint64_t{1}) - 1) * block_tokens;
}

/// The context that the KV memory allows.
Result<uint64_t> context_of_memory(const Settings& settings, uint32_t model_context,
                                   uint64_t block_bytes, std::vector<std::string>& warnings) {
  const uint64_t block_tokens = settings.count("block-tokens");
  const uint64_t asked = settings.count("ctx");
  const uint64_t wanted = asked != 0 ? asked : model_context;
  const uint64_t needed = ((wanted + block_tokens - 1) / block_tokens + 1) * block_bytes;
  const uint64_t held = tokens_held(settings.count("kv-memory-mb"), block_tokens, block_bytes);
  const std::string advice = "; " + std::to_string(wanted) + " tokens (ctx) take " +
                             std::to_string((needed + (1 << 20) - 1) >> 20) + " MiB";
  if (held == 0 || held < asked) {
    return fail(ErrorCode::invalid_argument,
                "kv-memory-mb: " + settings.text("kv-memory-mb") + " MiB hold " +
                    std::to_string(held) + " tokens" + advice,
                "kv-memory-mb");
  }
  const uint64_t context = std::min(wanted, held);
  const std::string cut = context_warning(settings, static_cast<uint32_t>(context), model_context);
  if (!cut.empty()) warnings.push_back(cut + advice);
  return context;
}

Result<model::ModelConfig> config_of(const std::string& path, const char* setting) {
  const auto file = model::GgufFile::open(path);
  auto config = file ? model::ModelConfig::from_gguf(*file) : file.error();
  if (config) return config;
  return fail(ErrorCode::invalid_argument, std::string(setting) + ": " + config.error().message,
              setting);
}

Result<void> check_context(const Settings& settings, const model::ModelConfig& config) {
  if (settings.count("ctx") <= config.context_length) return {};
  return fail(ErrorCode::invalid_argument,
              "ctx: " + settings.text("ctx") + " tokens are more than the model's context, " +
                  std::to_string(config.context_length),
              "ctx");
}

/// A gateway's targets could never have such a context. It may have no more of its model than the
/// text, which is read at once.
Result<void> check_gateway_context(const Settings& settings, const std::string& model) {
  const auto config = config_of(model, "model");
  return config ? check_context(settings, *config) : Result<void>();
}

Result<void> check_model(const Settings& settings, CheckedSettings& checked) {
  model::ModelConfig config;
  OUTRIDER_ASSIGN(config, config_of(checked.model, "model"));
  OUTRIDER_TRY(kernels::check_kv_kinds(engine_options(settings).kv_kinds, config.head_dim));
  OUTRIDER_TRY(check_context(settings, config));
  std::vector<std::string> warnings;
  OUTRIDER_ASSIGN(warnings, check_kv_sizes(settings, config));
  checked.warnings.insert(checked.warnings.end(), warnings.begin(), warnings.end());
  return {};
}

Result<model::TokenizerData> tokenizer_of(const std::string& path, const char* setting) {
  const auto file = model::GgufFile::open(path);
  auto tokenizer = file ? model::tokenizer_data_from_gguf(*file) : file.error();
  if (tokenizer) return tokenizer;
  return fail(ErrorCode::invalid_argument, std::string(setting) + ": " + tokenizer.error().message,
              setting);
}

/// Tokens of a model's context that so much KV memory holds.
uint64_t context_held(const Settings& settings, const model::ModelConfig& config,
                      const model::EngineOptions& options, uint64_t memory_mb) {
  const uint64_t asked = settings.count("ctx");
  const uint64_t wanted = asked == 0 ? config.context_length : asked;
  const uint64_t block_bytes =
      model::kv_geometry(config, options.block_tokens, options.kv_kinds).block_bytes();
  return std::min({wanted, uint64_t{config.context_length},
                   tokens_held(memory_mb, options.block_tokens, block_bytes)});
}

Result<void> check_draft_context(const Settings& settings, const model::ModelConfig& draft,
                                 const model::ModelConfig& model,
                                 std::vector<std::string>& warnings) {
  const uint64_t mb = settings.count("draft-kv-memory-mb");
  const uint64_t drafted = context_held(settings, draft, draft_engine_options(settings, mb), mb);
  if (drafted == 0) {
    return fail(ErrorCode::invalid_argument,
                "draft-kv-memory-mb: " + std::to_string(mb) + " MiB hold no token",
                "draft-kv-memory-mb");
  }
  if (settings.text("kv-kind") == "auto") return {};  // the plan says what the model's memory holds
  const uint64_t context =
      context_held(settings, model, engine_options(settings), settings.count("kv-memory-mb"));
  if (drafted < context) warnings.push_back(draft_context_warning(mb, drafted, context));
  return {};
}

/// A draft of other tokens would be noise.
Result<void> check_draft(const Settings& settings, CheckedSettings& checked) {
  if (!uses_draft_model(settings)) return {};
  std::string path;
  OUTRIDER_ASSIGN(path, resolve_model(settings.text("draft"), "draft"));
  model::ModelConfig draft;
  OUTRIDER_ASSIGN(draft, config_of(path, "draft"));
  model::ModelConfig model;
  OUTRIDER_ASSIGN(model, config_of(checked.model, "model"));
  model::TokenizerData own;
  model::TokenizerData other;
  OUTRIDER_ASSIGN(own, tokenizer_of(path, "draft"));
  OUTRIDER_ASSIGN(other, tokenizer_of(checked.model, "model"));
  const std::string difference = model::first_difference(own, other);
  if (difference.empty()) return check_draft_context(settings, draft, model, checked.warnings);
  return fail(ErrorCode::invalid_argument,
              "draft: the tokenizer of " + path + " is another than that of " + checked.model +
                  " (" + difference + "): it cannot draft for it",
              "draft");
}

Result<void> check_keys(const Settings& settings, std::vector<std::string>& warnings) {
  if (settings.text("api-key-file").empty()) return {};
  const auto keys = gateway::ApiKeys::load(settings.text("api-key-file"));
  if (!keys) return keys.error();
  OUTRIDER_TRY(keys->check_admin(settings.text("admin-tenant")));
  std::map<std::string, uint64_t> quotas;
  OUTRIDER_ASSIGN(quotas, parse_tenant_quotas(settings.text("store-tenant-quota-mb")));
  for (const auto& [tenant, mb] : quotas) {
    if (keys->has_tenant(tenant)) continue;
    warnings.push_back("store-tenant-quota-mb: the API key file has no key of \"" + tenant + "\"");
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> check_kv_sizes(const Settings& settings,
                                                const model::ModelConfig& config) {
  std::vector<std::string> warnings;
  uint64_t context = settings.count("ctx") != 0 ? settings.count("ctx") : config.context_length;
  if (settings.text("kv-kind") != "auto") {  // else the plan takes what fits
    const uint64_t block_bytes =
        model::kv_geometry(config, static_cast<uint32_t>(settings.count("block-tokens")),
                           engine_options(settings).kv_kinds)
            .block_bytes();
    OUTRIDER_ASSIGN(context,
                    context_of_memory(settings, config.context_length, block_bytes, warnings));
    OUTRIDER_TRY(check_quota_sizes(settings, block_bytes, warnings));
  }
  if (settings.count("local-window") >= context) {
    warnings.push_back("local-window " + settings.text("local-window") +
                       " has no effect: the context is " + std::to_string(context) + " tokens");
  }
  return warnings;
}

namespace {

/// The same may be found on several ways.
void note(const Result<void>& looked, CheckedSettings& checked) {
  if (looked) return;
  const Error& error = looked.error();
  const bool known = std::ranges::any_of(
      checked.errors, [&](const Error& other) { return other.message == error.message; });
  if (!known) checked.errors.push_back(error);
}

void look_at_serving(const Settings& settings, Command command, CheckedSettings& checked) {
  const auto together = [&]() -> Result<void> {
    OUTRIDER_ASSIGN(checked.warnings, check_together(settings, command));
    return {};
  };
  const auto model = [&]() -> Result<void> {
    OUTRIDER_ASSIGN(checked.model, resolve_model(settings.text("model")));
    if (command == Command::gateway) return check_gateway_context(settings, checked.model);
    OUTRIDER_TRY(check_model(settings, checked));
    return check_draft(settings, checked);
  };
  note(together(), checked);
  note(model(), checked);
  if (command != Command::gateway) note(check_devices(settings), checked);
  if (command != Command::node) note(check_keys(settings, checked.warnings), checked);
  const auto access = [&]() -> Result<void> {
    cluster::Credentials credentials;
    OUTRIDER_ASSIGN(credentials, cluster_credentials(settings));
    std::vector<std::string> warnings;
    OUTRIDER_ASSIGN(warnings, check_cluster_access(settings, credentials));
    checked.warnings.insert(checked.warnings.end(), warnings.begin(), warnings.end());
    if (command != Command::node) return {};
    const auto routers = routers_to_join(settings, credentials);
    return routers ? Result<void>() : routers.error();
  };
  note(access(), checked);
  if (command == Command::gateway) return;
  if (const auto store = store_options(settings); !store) note(store.error(), checked);
  check_lost_secret(settings, checked.warnings);
}

Result<CheckedSettings> check(const Settings& settings, Command command) {
  CheckedSettings checked;
  look_at_serving(settings, command, checked);
  if (!checked.errors.empty()) return checked.errors.front();
  return checked;
}

}  // namespace

Result<CheckedSettings> check_serving(const Settings& settings) {
  return check(settings, serving_command(settings));
}

Result<CheckedSettings> check_target_node(const Settings& settings) {
  return check(settings, Command::node);
}

CheckedSettings check_configuration(const Settings& settings) {
  CheckedSettings checked;
  note(check_addresses(settings), checked);
  for (const Setting& setting : settings.all()) {
    if (setting.kind != Setting::Kind::directory || setting.value.empty()) continue;
    const auto usable = check_directory(setting);
    if (usable || setting.name != "store-dir" || !fs::is_directory(setting.value)) {
      note(usable, checked);
    } else {  // a start serves without it
      checked.warnings.push_back(usable.error().message + ": nothing is stored (read_only)");
    }
  }
  look_at_serving(settings, command_of(settings), checked);
  check_privacy("api-key-file", settings.text("api-key-file"), checked.warnings);
  check_privacy("store-dir", settings.text("store-dir"), checked.warnings);
  check_privacy("cluster-tls-key", settings.text("cluster-tls-key"), checked.warnings);
  note(check_secret(settings, checked.warnings), checked);
  check_store_user(settings, checked.warnings);
  check_store_shares(settings, checked.warnings);
  return checked;
}

}  // namespace outrider::tools
