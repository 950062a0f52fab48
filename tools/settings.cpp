#include "tools/settings.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "base/limits.hpp"
#include "base/sampling_ranges.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tools/origins.hpp"
#include "tools/parse_number.hpp"
#include "tools/tenant_quotas.hpp"

namespace outrider::tools {
namespace {

using Kind = Setting::Kind;

std::string kebab(std::string_view key) {
  std::string name(key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

Result<void> under_its_name(const Setting& setting, const Error& error) {
  return fail(ErrorCode::invalid_argument, setting.name + ": " + error.message, setting.name);
}

Result<void> check_kv_kinds(const Setting& setting, std::string_view value) {
  const auto is_it = [&](const std::string& word) { return word == value; };
  if (std::any_of(setting.choices.begin(), setting.choices.end(), is_it)) return {};
  const auto kinds = kernels::parse_kv_kinds(value);
  return kinds ? Result<void>() : under_its_name(setting, kinds.error());
}

Result<void> check_kv_kinds_list(const Setting& setting, std::string_view value) {
  const auto kinds = kernels::parse_kv_kinds_list(value);
  return kinds ? Result<void>() : under_its_name(setting, kinds.error());
}

Result<void> check_choice(const Setting& setting, std::string_view value) {
  if (std::find(setting.choices.begin(), setting.choices.end(), value) != setting.choices.end()) {
    return {};
  }
  std::string list;
  for (const std::string& choice : setting.choices) list += (list.empty() ? "" : ", ") + choice;
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) + "\" is not one of " + list,
              setting.name);
}

Result<void> check_count(const Setting& setting, std::string_view value) {
  const IntegerRange range{setting.minimum, setting.maximum};
  int64_t number = 0;
  if (parse_number(value, range, number) || check_choice(setting, value)) return {};
  std::string forms = describe(range) + (setting.unit.empty() ? "" : " " + setting.unit);
  for (const std::string& word : setting.choices) forms += " or " + word;
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) + "\" is not " + forms, setting.name);
}

/// Empty if one of them is not in the range.
std::vector<uint32_t> parse_counts(std::string_view text, IntegerRange range) {
  std::vector<uint32_t> numbers;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (!parse_number(text.substr(at, end - at), range, numbers.emplace_back())) return {};
    at = end + 1;
  }
  return numbers;
}

Result<void> check_counts(const Setting& setting, std::string_view value) {
  const IntegerRange range{setting.minimum, setting.maximum};
  const size_t wanted = parse_counts(setting.default_value, range).size();
  if (parse_counts(value, range).size() == wanted) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) + "\" is not " + std::to_string(wanted) +
                  " numbers by commas, each " + describe(range),
              setting.name);
}

struct DecimalRange : NumberRange {
  using Value = double;
};

Result<void> check_decimal(const Setting& setting, std::string_view value) {
  const DecimalRange range{
      {static_cast<double>(setting.minimum), static_cast<double>(setting.maximum)}};
  double number = 0;
  if (parse_number(value, range, number)) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) + "\" is not " + describe(range),
              setting.name);
}

/// host:port, :port or one of the setting's words. Port 0 lets the system choose.
Result<void> check_address(const Setting& setting, std::string_view value) {
  if (check_choice(setting, value)) return {};
  const size_t colon = value.rfind(':');
  uint16_t port = 0;
  if (colon != std::string_view::npos &&
      parse_number(value.substr(colon + 1), IntegerRange{0, UINT16_MAX}, port)) {
    return {};
  }
  std::string forms = "host:port or :port";
  for (const std::string& word : setting.choices) forms += " or " + word;
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) + "\" is not " + forms, setting.name);
}

Result<void> check_origins(const Setting& setting, std::string_view value) {
  if (is_origins(value)) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) +
                  "\" is not *, off or origins by commas, each scheme://host or scheme://host:port",
              setting.name);
}

Result<void> check_value(const Setting& setting, std::string_view value) {
  switch (setting.kind) {
    case Kind::count:
      return check_count(setting, value);
    case Kind::counts:
      return check_counts(setting, value);
    case Kind::decimal:
      return check_decimal(setting, value);
    case Kind::choice:
      return check_choice(setting, value);
    case Kind::address:
      return check_address(setting, value);
    case Kind::flag:
      if (value == "true" || value == "false") return {};
      return fail(ErrorCode::invalid_argument,
                  setting.name + ": \"" + std::string(value) + "\" is not true or false",
                  setting.name);
    case Kind::kv_kinds:
      return check_kv_kinds(setting, value);
    case Kind::kv_kinds_list:
      return check_kv_kinds_list(setting, value);
    case Kind::origins:
      return check_origins(setting, value);
    case Kind::tenant_quotas: {
      const auto quotas = parse_tenant_quotas(value);
      return quotas ? Result<void>() : under_its_name(setting, quotas.error());
    }
    case Kind::text:
    case Kind::path:
    case Kind::directory:
      return {};
  }
  return {};
}

std::vector<Setting> table() {
  using limits::batch_tokens_max;
  using limits::sequences_max;
  return {
      {.name = "model", .kind = Kind::path, .help = "GGUF file, or a fetched name"},
      {.name = "model-name", .help = "what clients call it (default: the file's stem)"},
      {.name = "http",
       .kind = Kind::address,
       .default_value = "127.0.0.1:8080",
       .help = "OpenAI wire, health, metrics"},
      {.name = "rpc",
       .kind = Kind::address,
       .default_value = "127.0.0.1:8081",
       .help = "Cap'n Proto RPC; off: no port",
       .choices = {"off"}},
      {.name = "device",
       .kind = Kind::choice,
       .default_value = "cpu",
       .help = "where the model runs",
       .choices = {"cpu"}},
      {.name = "threads",
       .kind = Kind::count,
       .unit = "threads",
       .default_value = "auto",
       .help = "compute threads; auto or 0: the physical cores of the affinity mask, up to the "
               "cgroup's quota",
       .choices = {"auto"},
       .maximum = 1024},
      {.name = "pin-threads",
       .kind = Kind::choice,
       .default_value = "auto",
       .help = "keep each thread on one CPU; auto: with several caches or memory nodes, if threads "
               "take all cores",
       .choices = {"auto", "on", "off"}},
      {.name = "weights-cache",
       .kind = Kind::directory,
       .help = "directory that keeps packed weights for fast starts; empty: none"},
      {.name = "ctx",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "0",
       .help = "longest sequence; 0: the model's own",
       .maximum = 1 << 24},
      {.name = "max-batch-tokens",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "512",
       .help = "rows of one step",
       .minimum = 1,
       .maximum = batch_tokens_max},
      {.name = "decode-plan",
       .kind = Kind::choice,
       .default_value = "none",
       .help = "rows of a prefill chunk by the tokens before it; none: as many as a step has; "
               "fixed: decode-chunks; auto: measured at start",
       .choices = {"none", "fixed", "auto"}},
      {.name = "decode-chunks",
       .kind = Kind::counts,
       .unit = "tokens",
       .default_value = "128,256,512",
       .help = "decode-plan fixed: rows behind up to 512 tokens, up to 2048, above",
       .minimum = 1,
       .maximum = batch_tokens_max},
      {.name = "max-seqs",
       .kind = Kind::count,
       .unit = "sequences",
       .default_value = "64",
       .help = "running sequences at once",
       .minimum = 1,
       .maximum = sequences_max},
      {.name = "max-waiting",
       .kind = Kind::count,
       .unit = "choices",
       .default_value = "1024",
       .help = "waiting choices; beyond it clients get 429",
       .minimum = 1,
       .maximum = limits::engine_inbox_choices_max},
      {.name = "kv-kind",
       .kind = Kind::kv_kinds,
       .default_value = "fp16",
       .help = "cached keys and values: fp32, fp16, bf16, fp8, q8_0, q4_0, nf4, q3, with +hadamard "
               "keys are turned first; auto: measured",
       .choices = {"auto"}},
      {.name = "kv-candidates",
       .kind = Kind::kv_kinds_list,
       .default_value = "q8_0 fp8 k=q8_0,v=q4_0 k=q8_0+hadamard,v=q4_0 k=q8_0,v=nf4 q4_0 "
                        "q4_0+hadamard nf4 q3",
       .help =
           "kinds that kv-kind auto measures, as far as the model's heads allow; fp16 is always "
           "one"},
      {.name = "kv-gate-nll",
       .kind = Kind::decimal,
       .unit = "nats",
       .default_value = "0.05",
       .help = "kv-kind auto: what a token's mean NLL may rise by from fp16",
       .maximum = 100},
      {.name = "kv-gate-ppl",
       .kind = Kind::decimal,
       .default_value = "1.05",
       .help = "kv-kind auto: what the perplexity may be multiplied by",
       .minimum = 1,
       .maximum = 100},
      {.name = "kv-gate-needle-kl",
       .kind = Kind::decimal,
       .unit = "nats",
       .default_value = "0.1",
       .help = "kv-kind auto: mean KL where facts have to be found again",
       .maximum = 100},
      {.name = "kv-probe-prompt",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "64",
       .help = "kv-kind auto: tokens of each of the four passages that the probe reads",
       .minimum = 8,
       .maximum = 512},
      {.name = "kv-probe-decode",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "4",
       .help = "kv-kind auto: tokens of each answer to what was hidden between them",
       .minimum = 1,
       .maximum = 64},
      {.name = "plan-dir",
       .kind = Kind::directory,
       .help = "directory that keeps what kv-kind auto found; empty: each start measures"},
      {.name = "plan-max-age-s",
       .kind = Kind::count,
       .unit = "s",
       .default_value = "604800",
       .help = "a start measures anew when a plan is as old as this; 0: never",
       .maximum = int64_t{1} << 40},
      {.name = "kv-memory-mb",
       .kind = Kind::count,
       .unit = "MB",
       .default_value = "1024",
       .help = "size of the KV pool",
       .minimum = 1,
       .maximum = 1 << 24},
      {.name = "block-tokens",
       .kind = Kind::choice,
       .unit = "tokens",
       .default_value = "16",
       .help = "positions in one KV block",
       .choices = {"16", "32", "64"}},
      {.name = "local-window",
       .kind = Kind::count,
       .unit = "tokens",
       .default_value = "0",
       .help = "each token attends to so many, itself the last; 0: all. Changes answers",
       .maximum = 1 << 24},
      {.name = "prefix-caching",
       .kind = Kind::choice,
       .default_value = "on",
       .help = "keep full KV blocks for prompts that begin alike",
       .choices = {"on", "off"}},
      {.name = "store-dir",
       .kind = Kind::directory,
       .help = "directory that keeps KV blocks across restarts; empty: none"},
      {.name = "store-cap-mb",
       .kind = Kind::count,
       .unit = "MB",
       .default_value = "4096",
       .help = "bytes of that directory, all files together",
       .minimum = 64,
       .maximum = 1 << 24},
      {.name = "store-quota-mb",
       .kind = Kind::count,
       .unit = "MB",
       .default_value = "0",
       .help = "bytes of one tenant's blocks; 0: store-cap-mb",
       .maximum = 1 << 24},
      {.name = "store-tenant-quota-mb",
       .kind = Kind::tenant_quotas,
       .unit = "MB",
       .help = "the same for some tenants: NAME=MB by commas"},
      {.name = "store-write-mb-s",
       .kind = Kind::count,
       .unit = "MB/s",
       .default_value = "128",
       .help = "how fast the store writes at most; 0: no limit",
       .maximum = 1 << 20},
      {.name = "cluster-secret-file",
       .kind = Kind::path,
       .help =
           "keys the names of cached blocks; empty: one in store-dir, or without it a random one"},
      {.name = "api-key-file",
       .kind = Kind::path,
       .help = "one key a line (tenant:key or key); empty: no keys"},
      {.name = "cors-origins",
       .kind = Kind::origins,
       .default_value = "*",
       .help = "web pages that may ask: *, or origins (https://my.page) by commas; off: none"},
      {.name = "drain-timeout-s",
       .kind = Kind::count,
       .unit = "s",
       .default_value = "30",
       .help = "time for admitted streams after SIGTERM",
       .maximum = 86'400},
      {.name = "log-level",
       .kind = Kind::choice,
       .default_value = "info",
       .help = "what is logged",
       .choices = {"trace", "debug", "info", "warn", "error", "off"}},
      {.name = "log-json",
       .kind = Kind::flag,
       .default_value = "false",
       .help = "JSON lines instead of text"},
      {.name = "log-prompts",
       .kind = Kind::flag,
       .default_value = "false",
       .help = "log prompt text"},
  };
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

Settings::Settings() : settings_(table()) {
  for (Setting& setting : settings_) setting.value = setting.default_value;
}

Setting* Settings::find(std::string_view name) {
  const auto found = std::find_if(settings_.begin(), settings_.end(),
                                  [&](const Setting& setting) { return setting.name == name; });
  return found == settings_.end() ? nullptr : &*found;
}

const Setting& Settings::get(std::string_view name) const {
  const Setting* found = const_cast<Settings*>(this)->find(name);
  OUTRIDER_CHECK(found != nullptr, name);
  return *found;
}

Result<void> Settings::set(std::string_view name, std::string_view value,
                           const std::string& origin) {
  Setting* setting = find(name);
  if (setting == nullptr) {
    const auto nearest = std::min_element(
        settings_.begin(), settings_.end(), [&](const Setting& a, const Setting& b) {
          return edit_distance(name, a.name) < edit_distance(name, b.name);
        });
    return fail(
        ErrorCode::invalid_argument,
        "unknown setting \"" + std::string(name) + "\"; did you mean \"" + nearest->name + "\"?",
        std::string(name));
  }
  OUTRIDER_TRY(check_value(*setting, value));
  setting->value = value;
  setting->origin = origin;
  return {};
}

Result<void> Settings::load_yaml(const std::string& path) {
  std::error_code ignored;
  std::ifstream file(path);
  const int reason = std::filesystem::is_directory(path, ignored) ? EISDIR : file ? 0 : errno;
  if (reason != 0) {
    return fail(ErrorCode::invalid_argument,
                "config: cannot read \"" + path + "\": " + std::strerror(reason), "config");
  }
  YAML::Node root;
  try {
    root = YAML::Load(file);
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::invalid_argument, path + ": " + error.what(), "config");
  }
  if (root.IsNull()) return {};
  if (!root.IsMap()) {
    return fail(ErrorCode::invalid_argument, path + ": expected a map of settings", "config");
  }
  std::set<std::string> seen;
  for (const auto& entry : root) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      return fail(
          ErrorCode::invalid_argument,
          path + ": line " + std::to_string(entry.first.Mark().line + 1) + ": expected key: value",
          "config");
    }
    const std::string name = kebab(entry.first.as<std::string>());
    const Result<void> result =
        seen.insert(name).second
            ? set(name, entry.second.as<std::string>(), "file " + path)
            : fail(ErrorCode::invalid_argument, "\"" + name + "\" is set twice", name);
    if (!result) {
      return fail(result.error().code,
                  path + ": line " + std::to_string(entry.first.Mark().line + 1) + ": " +
                      result.error().message,
                  result.error().field);
    }
  }
  return {};
}

const std::string& Settings::text(std::string_view name) const {
  return get(name).value;
}

uint64_t Settings::count(std::string_view name) const {
  int64_t number = 0;
  return parse_number(get(name).value, IntegerRange{0, INT64_MAX}, number)
             ? static_cast<uint64_t>(number)
             : 0;
}

std::vector<uint32_t> Settings::counts(std::string_view name) const {
  return parse_counts(get(name).value, {0, UINT32_MAX});
}

double Settings::decimal(std::string_view name) const {
  double number = 0;
  parse_number(get(name).value, DecimalRange{{-1e300, 1e300}}, number);
  return number;
}

bool Settings::flag(std::string_view name) const {
  return get(name).value == "true";
}

std::string Settings::render() const {
  const auto pad = [](std::string text, size_t width) {
    text.resize(std::max(width, text.size() + 1), ' ');
    return text;
  };
  std::string out =
      pad("setting", 18) + pad("value", 26) + pad("unit", 11) + pad("default", 17) + "origin\n";
  for (const Setting& setting : settings_) {
    out += pad(setting.name, 18) + pad(setting.value.empty() ? "-" : setting.value, 26) +
           pad(setting.unit.empty() ? "-" : setting.unit, 11) +
           pad(setting.default_value.empty() ? "-" : setting.default_value, 17) + setting.origin +
           "\n";
  }
  return out;
}

}  // namespace outrider::tools
