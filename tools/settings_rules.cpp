#include "tools/settings_rules.hpp"

#include <algorithm>
#include <map>

#include "tools/engine_options.hpp"
#include "tools/tenant_quotas.hpp"

namespace outrider::tools {
namespace {

/// Settings that begin with `prefix` have an effect only where `condition` says so.
struct Need {
  std::string_view prefix;
  bool (*met)(const Settings&);
  const char* condition;
  bool of_nodes = true;  ///< Else only of commands that are no node.
};

bool is_automatic(const Settings& settings) {
  return settings.text("kv-kind") == "auto";
}

bool is_of_a_cluster(const Settings& settings) {
  return settings.text("cluster") != "off" || !settings.text("join").empty();
}

constexpr Need k_needs[] = {
    {"store-", [](const Settings& s) { return !s.text("store-dir").empty(); }, "without store-dir"},
    {"kv-host-mb", [](const Settings& s) { return s.text("prefix-caching") == "on"; },
     "with prefix-caching off"},
    {"cluster-secret-",
     [](const Settings& s) { return is_of_a_cluster(s) || !s.text("store-dir").empty(); },
     "without store-dir or cluster"},
    {"cluster-tls-name", [](const Settings&) { return false; }, "but in outrider node", false},
    {"cluster-tls-name", [](const Settings& s) { return !s.text("cluster-tls-ca").empty(); },
     "without cluster-tls-ca"},
    {"cluster-tls-", is_of_a_cluster, "without cluster"},
    {"cluster-nccl",
     [](const Settings& s) { return is_of_a_cluster(s) && s.text("device") != "cpu"; },
     "without cluster, and unless device is a GPU"},
    {"kv-candidates", is_automatic, "unless kv-kind is auto"},
    {"kv-gate-", is_automatic, "unless kv-kind is auto"},
    {"kv-probe-", is_automatic, "unless kv-kind is auto"},
    {"plan-", is_automatic, "unless kv-kind is auto"},
    {"plan-max-age-s",
     [](const Settings& s) { return !s.text("plan-dir").empty() || !s.text("store-dir").empty(); },
     "without plan-dir or store-dir"},
    {"store-tenant-", [](const Settings& s) { return !s.text("api-key-file").empty(); },
     "without api-key-file", false},
    {"admin-tenant", [](const Settings& s) { return !s.text("api-key-file").empty(); },
     "without api-key-file"},
    {"spec-", [](const Settings& s) { return s.text("spec") != "off"; }, "with spec off"},
    {"spec-depth-max", [](const Settings& s) { return s.count("spec-k") == 0; }, "with spec-k"},
    {"draft-", [](const Settings& s) { return !s.text("draft").empty(); }, "without draft", false},
    {"draft",
     [](const Settings& s) { return s.text("spec") == "auto" || s.text("spec") == "draft"; },
     "unless spec is auto or draft"},
    {"join", [](const Settings&) { return false; }, "but in outrider node", false},
    {"node-name", [](const Settings&) { return false; }, "but in outrider node", false},
    {"weights-cache", [](const Settings& s) { return s.text("device") == "cpu"; },
     "unless device is cpu"},
    {"decode-chunks", [](const Settings& s) { return s.text("decode-plan") == "fixed"; },
     "unless decode-plan is fixed"},
};

Result<void> check_quotas(const Settings& settings, std::vector<std::string>& warnings) {
  if (settings.text("store-dir").empty()) return {};  // without effect: a warning says so
  const uint64_t cap = settings.count("store-cap-mb");
  const auto over = [&](const char* name, const std::string& what) {
    return fail(ErrorCode::invalid_argument,
                std::string(name) + ": " + what + " are more than store-cap-mb, " +
                    settings.text("store-cap-mb") + " MiB",
                name);
  };
  if (settings.count("store-quota-mb") > cap) {
    return over("store-quota-mb", settings.text("store-quota-mb") + " MiB of a tenant");
  }
  std::map<std::string, uint64_t> quotas;
  OUTRIDER_ASSIGN(quotas, parse_tenant_quotas(settings.text("store-tenant-quota-mb")));
  uint64_t promised = 0;
  for (const auto& [tenant, mb] : quotas) {
    if (mb > cap) {
      return over("store-tenant-quota-mb", std::to_string(mb) + " MiB of \"" + tenant + "\"");
    }
    promised += mb;
  }
  if (promised > cap - cap / 4) {
    warnings.push_back("store-tenant-quota-mb: " + std::to_string(promised) +
                       " MiB together are more than three quarters of store-cap-mb, " +
                       settings.text("store-cap-mb") +
                       ": evicted blocks stay in the files for a while and need the rest");
  }
  return {};
}

/// Of a gateway: that settings of an engine, which it does not have, have no effect.
bool is_of_an_engine(const std::string& name) {
  const auto& names = engine_setting_names();
  return name != "model" &&
         (std::find(names.begin(), names.end(), name) != names.end() ||
          name.starts_with("store-") || name.starts_with("draft") || name == "kv-host-mb" ||
          name == "max-seqs" || name == "max-waiting" || name == "cluster-nccl");
}

/// Of a gateway: what it expects of targets.
bool is_of_targets(const Settings& settings, const std::string& name) {
  return name == "ctx" || name == "local-window" ||
         (name == "kv-kind" && settings.text(name) != "auto");
}

/// A draft node answers nobody: it has no store, no plan, no drafts of its own.
bool is_of_a_draft(const std::string& name) {
  static constexpr std::string_view k_names[] = {
      "model",        "device",       "threads",       "pin-threads", "ctx", "max-batch-tokens",
      "kv-memory-mb", "block-tokens", "weights-cache", "draft-rows"};
  return std::find(std::begin(k_names), std::end(k_names), name) != std::end(k_names);
}

Result<void> check_roles(const Settings& settings, Command command) {
  const std::string& role = settings.text("roles");
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::invalid_argument, "roles: " + what, "roles");
  };
  switch (command) {
    case Command::serve:
      if (role != "auto") return wrong("serve is auto or gateway; a " + role + " is a node's");
      break;
    case Command::gateway:
      if (settings.text("cluster") != "off") break;
      return wrong("a gateway needs an address where targets join: --cluster HOST:PORT");
    case Command::node:
      if (role == "gateway") return wrong("a node is a target or a draft; a gateway is serve's");
      break;
    case Command::local:
      break;
  }
  return {};
}

}  // namespace

Command serving_command(const Settings& settings) {
  return settings.text("roles") == "gateway" ? Command::gateway : Command::serve;
}

Command command_of(const Settings& settings) {
  const std::string& role = settings.text("roles");
  const bool is_node = role == "target" || role == "draft" || !settings.text("join").empty();
  return is_node ? Command::node : serving_command(settings);
}

Result<std::vector<std::string>> check_together(const Settings& settings, Command command) {
  const bool is_node = command == Command::node;
  const bool is_draft = is_node && settings.text("roles") != "target";
  std::vector<std::string> warnings;
  OUTRIDER_TRY(check_roles(settings, command));
  OUTRIDER_TRY(check_quotas(settings, warnings));
  if (command == Command::local && settings.text("spec") == "draft") {
    return fail(ErrorCode::invalid_argument, "spec: draft models draft for serve and nodes only",
                "spec");
  }
  if (!is_node && settings.text("spec") == "draft" && settings.text("draft").empty() &&
      settings.text("cluster") == "off") {
    return fail(
        ErrorCode::invalid_argument,
        "spec: draft needs a draft model: --draft FILE, or --cluster and a node that drafts",
        "spec");
  }
  for (const Setting& setting : settings.all()) {
    if (!settings.is_given(setting.name) || setting.value.empty()) continue;
    if (command == Command::gateway && is_of_an_engine(setting.name)) {
      if (is_of_targets(settings, setting.name)) continue;
      const bool drafts = setting.name.starts_with("draft") || setting.name.starts_with("spec");
      warnings.push_back(setting.name + " has no effect with roles gateway: " +
                         (setting.name == "draft" ? "a draft model joins by itself (outrider node "
                                                    "--join HOST:PORT --model DRAFT)"
                          : drafts                ? "nodes have their own"
                                                  : "targets have their own"));
      continue;
    }
    if (is_draft && is_of_an_engine(setting.name) && !is_of_a_draft(setting.name)) {
      warnings.push_back(setting.name + " has no effect in a node that drafts");
      continue;
    }
    const bool is_target = is_node && !is_draft;
    if (is_target && setting.name.starts_with("draft")) {
      warnings.push_back(setting.name +
                         " has no effect in a target: its drafts join by themselves");
      continue;
    }
    const auto unmet = std::find_if(std::begin(k_needs), std::end(k_needs), [&](const Need& need) {
      return (need.of_nodes || !is_node) && setting.name.starts_with(need.prefix) &&
             !need.met(settings);
    });
    if (unmet != std::end(k_needs)) {
      warnings.push_back(setting.name + " has no effect " + unmet->condition);
    }
  }
  const std::string& spec = settings.text("spec");
  if (command == Command::serve && settings.text("cluster") != "off" && spec != "auto" &&
      spec != "draft") {
    warnings.push_back("cluster: draft models that join have no effect with spec " + spec);
  }
  const auto chunks = settings.counts("decode-chunks");
  const uint64_t rows = settings.count("max-batch-tokens");
  if (settings.text("decode-plan") == "fixed" && settings.is_given("decode-chunks") &&
      *std::max_element(chunks.begin(), chunks.end()) > rows) {
    warnings.push_back("decode-chunks " + settings.text("decode-chunks") +
                       ": a step has max-batch-tokens rows at most, " + std::to_string(rows));
  }
  return warnings;
}

}  // namespace outrider::tools
