#include "tools/config_check.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/sampling_ranges.hpp"
#include "gateway/api_keys.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "model/gguf.hpp"
#include "model/model_config.hpp"
#include "tools/command.hpp"
#include "tools/engine_options.hpp"
#include "tools/kv_store.hpp"
#include "tools/parse_number.hpp"
#include "tools/settings_rules.hpp"

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
  const Address http(settings.text("http"));
  const Address rpc(settings.text("rpc"));
  if (http.port == 0 || http.port != rpc.port) return {};  // port 0 lets the system choose
  if (http.host != rpc.host && !http.is_everywhere() && !rpc.is_everywhere()) return {};
  return fail(ErrorCode::invalid_argument,
              "rpc: \"" + settings.text("rpc") + "\" is the port of http, \"" +
                  settings.text("http") + "\"",
              "rpc");
}

namespace fs = std::filesystem;

/// What is there, of a directory and those above it, must be a directory that can be written to.
Result<void> check_directory(const Setting& setting) {
  std::error_code ignored;
  fs::path path = fs::absolute(setting.value, ignored);
  while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
  const bool is_directory = fs::is_directory(path, ignored);
  if (is_directory && ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + path.string() + "\" " +
                  (is_directory ? std::string("cannot be written to: ") + std::strerror(errno)
                                : "is not a directory"),
              setting.name);
}

/// The store makes a secret of its own at its first start; looking must not.
Result<void> check_secret(const Settings& settings) {
  std::error_code ignored;
  const bool own = settings.text("cluster-secret-file").empty();
  if (own && !fs::exists(own_secret_path(settings.text("store-dir")), ignored)) return {};
  const auto secret = cluster_secret(settings);
  return secret ? Result<void>() : secret.error();
}

Result<void> check_model(const Settings& settings, const std::string& path) {
  const auto file = model::GgufFile::open(path);
  const auto config = file ? model::ModelConfig::from_gguf(*file) : file.error();
  if (!config) {
    return fail(ErrorCode::invalid_argument, "model: " + config.error().message, "model");
  }
  OUTRIDER_TRY(kernels::check_kv_kinds(engine_options(settings).kv_kinds, config->head_dim));
  if (settings.count("ctx") <= config->context_length) return {};
  return fail(ErrorCode::invalid_argument,
              "ctx: " + settings.text("ctx") + " tokens are more than the model's context, " +
                  std::to_string(config->context_length),
              "ctx");
}

}  // namespace

Result<std::string> check_configuration(const Settings& settings) {
  OUTRIDER_TRY(check_addresses(settings));
  if (const auto together = check_together(settings); !together) return together.error();
  for (const Setting& setting : settings.all()) {
    if (setting.kind != Setting::Kind::directory || setting.value.empty()) continue;
    OUTRIDER_TRY(check_directory(setting));
  }
  auto model = resolve_model(settings.text("model"));
  if (!model) return model.error();
  OUTRIDER_TRY(check_model(settings, *model));
  if (const std::string& keys = settings.text("api-key-file"); !keys.empty()) {
    const auto loaded = gateway::ApiKeys::load(keys);
    if (!loaded) return loaded.error();
    OUTRIDER_TRY(loaded->check_admin(settings.text("admin-tenant")));
  }
  if (const auto store = store_options(settings); !store) return store.error();
  OUTRIDER_TRY(check_secret(settings));
  return model;
}

}  // namespace outrider::tools
