#include "tools/command.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <utility>

#include "tools/settings_table.hpp"

namespace outrider::tools {

namespace {

/// What stands for the value in --help.
std::string placeholder(const Setting& setting) {
  using Kind = Setting::Kind;
  switch (setting.kind) {
    case Kind::count:
      return "N";
    case Kind::counts:
      return "N,N,…";
    case Kind::address:
      return "HOST:PORT";
    case Kind::path:
      return "FILE";
    case Kind::directory:
      return "DIR";
    case Kind::flag:
      return "[true|false]";
    case Kind::choice: {
      std::string words;
      for (const std::string& choice : setting.choices)
        words += (words.empty() ? "" : "|") + choice;
      return words;
    }
    case Kind::decimal:
      return "X";
    case Kind::kv_kinds:
      return "KIND|k=KIND,v=KIND";
    case Kind::kv_kinds_list:
      return "KINDS,…";
    case Kind::origins:
      return "*|off|ORIGIN,…";
    case Kind::tenant_quotas:
      return "NAME=MiB,…";
    case Kind::name:
      return "NAME";
    case Kind::text:
      break;
  }
  return "TEXT";
}

}  // namespace

void add_commands(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  app.footer("Example: outrider chat --model smollm2-135m, or outrider serve --model FILE.gguf");
  add_serve(app, action);
  add_node(app, action);
  add_generate(app, action);
  add_chat(app, action);
  add_inspect(app, action);
  add_config(app, action);
  add_bench(app, action);
  add_load(app, action);
}

void SettingFlags::add(CLI::App& command, const std::vector<std::string>& names) {
  command.add_option("--config", config_, "YAML file with the same names in snake_case")
      ->type_name("FILE");
  std::vector<std::pair<Setting, std::string>> shown;  // with their topic
  for (SettingTopic& topic : setting_topics()) {
    for (Setting& setting : topic.settings) {
      if (!names.empty() && std::ranges::find(names, setting.name) == names.end()) continue;
      values_.emplace_back(setting.name, "");
      shown.emplace_back(std::move(setting), topic.title);
    }
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto& [setting, topic] = shown[i];
    std::string help = setting.help;
    if (!setting.default_value.empty()) {
      const bool has_unit =
          !setting.unit.empty() &&
          (setting.kind == Setting::Kind::choice ||
           std::ranges::find(setting.choices, setting.default_value) == setting.choices.end());
      help += " [" + setting.default_value + (has_unit ? " " + setting.unit : "") + "]";
    }
    auto* option = command.add_option("--" + setting.name, values_[i].second, help);
    option->type_name(placeholder(setting))->group(topic);
    if (setting.kind == Setting::Kind::flag) option->expected(0, 1)->default_str("true");
    options_.push_back(option);
  }
}

Result<Settings> SettingFlags::resolve() const {
  Settings settings;
  if (!config_.empty()) OUTRIDER_TRY(settings.load_yaml(config_));
  for (size_t i = 0; i < values_.size(); ++i) {
    if (options_[i]->count() == 0) continue;
    OUTRIDER_TRY(settings.set(values_[i].first, values_[i].second, "flag"));
  }
  return settings;
}

Result<std::string> resolve_model(const std::string& model, const std::string& setting) {
  namespace fs = std::filesystem;
  if (model.empty()) {
    return fail(ErrorCode::invalid_argument,
                "no model given; use --model FILE.gguf or a fetched name such as smollm2-135m",
                "model");
  }
  std::error_code ignored;
  if (fs::is_regular_file(model, ignored)) return model;
  std::vector<fs::path> folders;
  if (const char* from_env = std::getenv("OUTRIDER_MODELS_DIR")) folders.emplace_back(from_env);
  folders.emplace_back("models");
  for (const fs::path& folder : folders) {
    const fs::path candidate = folder / (model + ".gguf");
    if (fs::is_regular_file(candidate, ignored)) return candidate.string();
  }
  std::string message = setting + ": ";
  if (fs::is_directory(model, ignored)) {
    message += "\"" + model + "\" is a directory; name a GGUF file in it";
  } else if (fs::exists(model, ignored)) {
    message += "\"" + model + "\" is not a regular file";
  } else {
    message += "no file \"" + model + "\"";
    if (model.find('/') == model.npos && !model.ends_with(".gguf")) {
      for (const fs::path& folder : folders) {
        message += " and no \"" + (folder / (model + ".gguf")).string() + '"';
      }
    }
    message += "; tools/fetch_model.py --list shows the demo models that it can fetch";
  }
  return fail(ErrorCode::invalid_argument, message, setting);
}

namespace {

void add_names(const CLI::App& app, std::set<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.insert("--" + name);
  }
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    add_names(*sub, names);
  }
}

std::string without_dashes(const std::string& word) {
  const size_t start = std::min(word.find_first_not_of('-'), word.size());
  return word.substr(start, word.find('=') - start);
}

/// CLI11's words for a flag that takes one value and got more: "--http: At Most 1 required but
/// received 2". Other reasons stay as they are.
std::string repeated(const std::string& reason) {
  constexpr std::string_view k_too_many = ": At Most 1 required but received ";
  const size_t at = reason.find(k_too_many);
  if (at == std::string::npos) return reason;
  const std::string count = reason.substr(at + k_too_many.size());
  return reason.substr(0, at) + " is given " + (count == "2" ? "twice" : count + " times");
}

/// The subcommand that was named last.
const CLI::App& chosen(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen(*parsed.back());
}

}  // namespace

void parse_words(CLI::App& app, const std::vector<std::string>& words) {
  std::set<std::string> names;
  add_names(app, names);
  std::vector<std::string> reversed;  // as CLI11 takes them
  for (const std::string& word : words) {
    const bool empty_value = word.ends_with('=') && names.contains(word.substr(0, word.size() - 1));
    reversed.push_back(empty_value ? word.substr(0, word.size() - 1) : word);
    if (empty_value) reversed.emplace_back();
  }
  std::reverse(reversed.begin(), reversed.end());
  app.parse(std::move(reversed));
}

std::string usage_text(const CLI::App& app, const std::string& reason) {
  const auto unknown = app.remaining(true);
  if (unknown.empty()) return repeated(reason);
  const CLI::App& command = chosen(app);
  const std::string& word = unknown.front();
  std::vector<std::string> names;
  std::set<std::string> flags;
  std::string list;
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
    list += (list.empty() ? "" : ", ") + sub->get_name();
  }
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.insert(name);
  }
  names.insert(names.end(), flags.begin(), flags.end());
  const std::string written = without_dashes(word);
  const std::string nearest = names.empty() ? "" : nearest_name(written, names);
  const bool is_flag = word.starts_with('-');
  std::string text = (is_flag        ? "unknown flag \""
                      : list.empty() ? "unexpected argument \""
                                     : "unknown command \"") +
                     word + "\"";
  if (!names.empty() && name_distance(written, nearest) <= 1 + written.size() / 3) {
    return text + "; did you mean \"" + (flags.contains(nearest) ? "--" : "") + nearest + "\"?";
  }
  return is_flag || list.empty() ? text : text + "; the commands are " + list;
}

int report(const Error& error) {
  std::cerr << "outrider: " << error.message << '\n';
  return error.code == ErrorCode::invalid_argument ? k_exit_usage : k_exit_failed;
}

}  // namespace outrider::tools
