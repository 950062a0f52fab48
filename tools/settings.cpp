#include "tools/settings.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <set>

#include "base/comma_list.hpp"
#include "base/limits.hpp"
#include "base/regular_file.hpp"
#include "base/sampling_ranges.hpp"
#include "base/utf8.hpp"
#include "kernels/kv_kind_flags.hpp"
#include "tools/origins.hpp"
#include "tools/parse_number.hpp"
#include "tools/settings_table.hpp"
#include "tools/shown.hpp"
#include "tools/tenant_quotas.hpp"

namespace outrider::tools {
namespace {

using Kind = Setting::Kind;

constexpr size_t k_column_bytes_max = 26;  ///< of `config show`

/// What llama.cpp and vLLM call something that is unlike our name for it, and that.
constexpr std::pair<std::string_view, std::string_view> k_names_of_peers[] = {
    {"alias", "model-name"},
    {"served-model-name", "model-name"},
    {"ctx-size", "ctx"},
    {"max-model-len", "ctx"},
    {"host", "http"},
    {"port", "http"},
    {"api-key", "api-key-file"},
    {"n-gpu-layers", "device"},
    {"batch-size", "max-batch-tokens"},
    {"max-num-batched-tokens", "max-batch-tokens"},
    {"parallel", "max-seqs"},
    {"max-num-seqs", "max-seqs"},
    {"gpu-memory-utilization", "kv-memory-mb"},
    {"block-size", "block-tokens"},
    {"cache-type-k", "kv-kind"},
    {"kv-cache-dtype", "kv-kind"},
    {"model-draft", "draft"},
    {"speculative-model", "draft"},
    {"device-draft", "draft-device"},
    {"threads-draft", "draft-threads"},
    {"draft-max", "spec-depth-max"},
    {"num-speculative-tokens", "spec-k"},
    {"speculative-config", "spec"},
};

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
  if (kinds) return {};
  Error error = kinds.error();
  for (const std::string& word : setting.choices) error.message += ", nor " + word;
  return under_its_name(setting, error);
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
  for (const std::string_view entry : comma_list(text)) {
    if (!parse_number(entry, range, numbers.emplace_back())) return {};
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

/// It stands in lines of logs.
Result<void> check_name(const Setting& setting, std::string_view value) {
  constexpr std::string_view k_letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const bool is_plain = value.find_first_not_of(k_letters) == value.npos;
  if (is_plain && value.size() <= static_cast<size_t>(setting.maximum)) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + shown(std::string(value)) + "\" is not up to " +
                  std::to_string(setting.maximum) + " letters, digits, dots, dashes, underscores",
              setting.name);
}

Result<void> check_origins(const Setting& setting, std::string_view value) {
  if (is_origins(value)) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) +
                  "\" is not *, off or origins by commas, each scheme://host or scheme://host:port",
              setting.name);
}

bool is_path(const Setting& setting) {
  return setting.kind == Kind::path || setting.kind == Kind::directory;
}

/// What is shown, logged or sent is text; a path may be any bytes.
Result<void> check_text(const Setting& setting, std::string_view value) {
  const size_t valid = utf8_valid_prefix(value);
  if (is_path(setting) || valid == value.size()) return {};
  return fail(ErrorCode::invalid_argument,
              setting.name + ": is not valid UTF-8: byte " + std::to_string(valid) + " is wrong",
              setting.name);
}

/// Neither YAML nor `--flag=~/kv` is read by a shell, so it is done here, for each path alike.
Result<std::string> with_home(const Setting& setting, std::string_view value) {
  if (!is_path(setting) || !value.starts_with('~')) return std::string(value);
  const char* home = std::getenv("HOME");
  const bool of_ours = value.size() == 1 || value[1] == '/';
  if (of_ours && home != nullptr && *home != '\0') return home + std::string(value.substr(1));
  return fail(ErrorCode::invalid_argument,
              setting.name + ": \"" + std::string(value) + "\": " +
                  (of_ours ? "there is no $HOME for ~" : "only ~ and ~/… are known, or write ./~…"),
              setting.name);
}

Result<void> check_value(const Setting& setting, std::string_view value) {
  switch (setting.kind) {
    case Kind::name:
      return check_name(setting, value);
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
      if (static_cast<int64_t>(value.size()) <= setting.maximum) return {};
      return fail(ErrorCode::invalid_argument,
                  setting.name + ": has " + std::to_string(value.size()) + " bytes, at most " +
                      std::to_string(setting.maximum) + " are allowed",
                  setting.name);
    case Kind::path:
    case Kind::directory:
      return {};
  }
  return {};
}

/// What stands where one value should.
Error not_one_value(const std::string& name, const YAML::Node& node) {
  const std::string what = node.IsSequence() ? "a YAML list; write the entries of a list by commas"
                           : node.IsMap()    ? "a YAML map; settings are not nested"
                                             : "nothing; write \"\" for an empty value";
  return fail(ErrorCode::invalid_argument, name + ": takes one value, here is " + what, name);
}

/// Levenshtein's distance in bytes.
size_t edits_between(std::string_view a, std::string_view b) {
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

}  // namespace

size_t name_distance(std::string_view a, std::string_view b) {
  if (std::ranges::find(k_names_of_peers, std::pair(a, b)) != std::end(k_names_of_peers)) return 0;
  const auto begins_with = [](std::string_view longer, std::string_view words) {
    return !words.empty() && longer.size() > words.size() && longer.starts_with(words) &&
           longer[words.size()] == '-';
  };
  return begins_with(a, b) || begins_with(b, a) ? 1 : edits_between(a, b);
}

const std::string& nearest_name(std::string_view written, const std::vector<std::string>& names) {
  const auto distance = [&](const std::string& name) {
    return std::pair(name_distance(written, name), edits_between(written, name));
  };
  return *std::ranges::min_element(names, {}, distance);
}

Settings::Settings() {
  for (const SettingTopic& topic : setting_topics()) {
    settings_.insert(settings_.end(), topic.settings.begin(), topic.settings.end());
  }
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

Error Settings::unknown(std::string_view written, char joint) const {
  const std::string name = kebab(written);
  std::vector<std::string> names;
  for (const Setting& setting : settings_) names.push_back(setting.name);
  std::string nearest = nearest_name(name, names);
  std::ranges::replace(nearest, '-', joint);
  return fail(ErrorCode::invalid_argument,
              "unknown setting \"" + std::string(written) + "\"; did you mean \"" + nearest + "\"?",
              name);
}

Result<void> Settings::set(std::string_view name, std::string_view value,
                           const std::string& origin) {
  Setting* setting = find(name);
  if (setting == nullptr) return unknown(name, '-');
  OUTRIDER_TRY(check_text(*setting, value));
  OUTRIDER_TRY(check_value(*setting, value));
  OUTRIDER_ASSIGN(setting->value, with_home(*setting, value));
  setting->origin = origin;
  return {};
}

Result<void> Settings::load_yaml(const std::string& path) {
  const auto text = read_regular_file(path, limits::config_file_bytes_max);
  if (!text) {
    return fail(ErrorCode::invalid_argument,
                "config: cannot read \"" + path + "\": " + text.error().message, "config");
  }
  YAML::Node root;
  try {
    root = YAML::Load(*text);
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::invalid_argument, path + ": " + error.what(), "config");
  }
  if (root.IsNull()) return {};
  if (!root.IsMap()) {
    return fail(ErrorCode::invalid_argument, path + ": expected a map of settings", "config");
  }
  std::set<std::string> seen;
  for (const auto& entry : root) {
    const std::string written = entry.first.IsScalar() ? entry.first.as<std::string>() : "";
    const std::string name = kebab(written);
    Result<void> result;
    if (name.empty()) {
      result = fail(ErrorCode::invalid_argument, "expected the name of a setting", "config");
    } else if (!seen.insert(name).second) {
      result = fail(ErrorCode::invalid_argument, "\"" + name + "\" is set twice", name);
    } else if (!entry.second.IsScalar()) {
      result = not_one_value(name, entry.second);
    } else if (find(name) == nullptr) {
      result = unknown(written, '_');
    } else {
      result = set(name, entry.second.as<std::string>(), "file " + path);
    }
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

bool Settings::is_given(std::string_view name) const {
  return get(name).origin != "default";
}

std::string Settings::render() const {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"setting", "value", "unit", "default", "origin"}};
  const auto shown = [](const std::string& text) { return text.empty() ? "-" : text; };
  for (const Setting& setting : settings_) {
    rows.push_back({setting.name, shown(setting.value), shown(setting.unit),
                    shown(setting.default_value), setting.origin});
  }
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i].size() <= k_column_bytes_max) widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string out;
  for (const Row& row : rows) {
    size_t column = 0;  // of what stands there now
    size_t wanted = 0;  // where the next entry begins
    for (size_t i = 0; i < row.size(); wanted += widths[i] + 2, ++i) {
      if (i > 0 && column + 2 > wanted) {  // what is too long for its column ends the line
        out += '\n';
        column = 0;
      }
      out += std::string(wanted - column, ' ') + row[i];
      column = wanted + row[i].size();
    }
    out += '\n';
  }
  return out;
}

}  // namespace outrider::tools
