#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "tools/settings.hpp"

namespace outrider::tools {

/// Exit codes of every command.
inline constexpr int k_exit_done = 0;
inline constexpr int k_exit_failed = 1;
inline constexpr int k_exit_usage = 2;  ///< wrong usage or configuration, before anything loads
inline constexpr int k_exit_hung = 3;   ///< a stop that was given up
inline constexpr int k_exit_interrupted = 130;

/// What a command line asks for: set by the chosen subcommand, run after parsing.
using Action = std::function<int()>;

/// Each adds one subcommand to `app` and stores its action when it is the chosen one.
void add_serve(CLI::App& app, Action& action);
void add_node(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_load(CLI::App& app, Action& action);
/// All of them, and what `outrider --help` says.
void add_commands(CLI::App& app, Action& action);

/// Flags that fill Settings, taken from its table, with `--config FILE` before them.
class SettingFlags {
 public:
  /// Adds `--config` and a flag for each name (all settings if empty).
  void add(CLI::App& command, const std::vector<std::string>& names = {});
  /// The file first, then the flags.
  Result<Settings> resolve() const;

 private:
  std::string config_;
  std::vector<std::pair<std::string, std::string>> values_;  // by name; empty: not given
  std::vector<CLI::Option*> options_;
};

/// A path to a GGUF, or a fetched name looked up as NAME.gguf in $OUTRIDER_MODELS_DIR and models/.
Result<std::string> resolve_model(const std::string& model, const std::string& setting = "model");

/// Parses what follows the program's name. `--flag=` is an empty value, where CLI11 would take the
/// next word.
void parse_words(CLI::App& app, const std::vector<std::string>& words);

/// Why parsing failed, for people: an unknown word comes with the nearest known one, and a flag
/// that stands twice is called that. `reason` is the parser's own.
std::string usage_text(const CLI::App& app, const std::string& reason);

/// Prints "outrider: message" to stderr and returns the exit code that fits.
int report(const Error& error);

}  // namespace outrider::tools
