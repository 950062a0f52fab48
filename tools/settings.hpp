#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace outrider::tools {

/// One setting: the same word as a flag (`--kv-memory-mb`) and as a YAML key (`kv_memory_mb`).
struct Setting {
  enum class Kind : uint8_t {
    text,
    name,  ///< letters, digits, dots, dashes, underscores; or empty
    count,
    counts,  ///< by commas, as many as the default has
    decimal,
    flag,
    choice,
    address,
    path,
    directory,
    kv_kinds,
    kv_kinds_list,
    origins,
    tenant_quotas
  };
  std::string name;  ///< kebab-case
  Kind kind = Kind::text;
  std::string unit;  ///< "tokens", "MiB", … or empty
  std::string default_value;
  std::string help;
  std::vector<std::string> choices;  ///< for Kind::choice; else words it may be instead
  int64_t minimum = 0;               ///< for Kind::count, Kind::counts and Kind::decimal
  int64_t maximum = INT64_MAX;       ///< likewise; bytes of Kind::text and name
  std::string value;
  std::string origin = "default";  ///< "default", "file NAME", "flag"
};

/// All settings of `serve` and the other commands that run a model, with where each value came
/// from. Files are read first, flags win.
class Settings {
 public:
  Settings();

  const std::vector<Setting>& all() const { return settings_; }

  /// Checks and stores; "~/" at the start of a path is $HOME. The error names the setting; an
  /// unknown name comes with the nearest one.
  Result<void> set(std::string_view name, std::string_view value, const std::string& origin);
  /// A flat YAML map with snake_case keys.
  Result<void> load_yaml(const std::string& path);

  const std::string& text(std::string_view name) const;
  uint64_t count(std::string_view name) const;  ///< 0 for a word
  std::vector<uint32_t> counts(std::string_view name) const;
  double decimal(std::string_view name) const;
  bool flag(std::string_view name) const;
  /// By a file or a flag.
  bool is_given(std::string_view name) const;

  /// `outrider config show`: name, value, unit, default, origin.
  std::string render() const;

 private:
  Setting* find(std::string_view name);
  /// With the nearest name, its words joined as where `written` stands.
  Error unknown(std::string_view written, char joint) const;
  const Setting& get(std::string_view name) const;
  std::vector<Setting> settings_;
};

/// The nearest of `names` by name_distance, and of equally near ones by edits. There must be one.
const std::string& nearest_name(std::string_view written, const std::vector<std::string>& names);

/// How unlike what was written is to a name, for "did you mean": 0 where llama.cpp or vLLM calls it
/// so, 1 where one has the other's words and then more ("draft-model", "draft"), otherwise the
/// Levenshtein distance in bytes.
size_t name_distance(std::string_view written, std::string_view name);

}  // namespace outrider::tools
