#include "tools/command.hpp"

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace outrider::tools {

void SettingFlags::add(CLI::App& command, const std::vector<std::string>& names) {
  command.add_option("--config", config_, "YAML file with the same names in snake_case")
      ->type_name("FILE");
  const Settings defaults;
  for (const Setting& setting : defaults.all()) {
    if (names.empty() || std::find(names.begin(), names.end(), setting.name) != names.end()) {
      values_.emplace_back(setting.name, "");
    }
  }
  for (auto& [name, value] : values_) {
    const auto& all = defaults.all();
    const auto setting = std::find_if(all.begin(), all.end(),
                                      [&](const Setting& entry) { return entry.name == name; });
    std::string help = setting->help;
    if (!setting->default_value.empty()) help += " [" + setting->default_value + "]";
    auto* option = command.add_option("--" + name, value, help);
    option->type_name(setting->unit.empty() ? "" : setting->unit);
    if (setting->kind == Setting::Kind::flag) option->expected(0, 1)->default_str("true");
    options_.push_back(option);
  }
}

Result<Settings> SettingFlags::resolve() const {
  Settings settings;
  if (!config_.empty()) OUTRIDER_TRY(settings.load_yaml(config_));
  for (size_t i = 0; i < values_.size(); ++i) {
    if (options_[i]->count() == 0) continue;
    const std::string& value = values_[i].second;
    OUTRIDER_TRY(settings.set(values_[i].first, value.empty() ? "true" : value, "flag"));
  }
  return settings;
}

Result<std::string> resolve_model(const std::string& model) {
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
  return fail(ErrorCode::invalid_argument,
              "model: no file \"" + model + "\" and no \"" + model +
                  ".gguf\" in models/; fetch a demo model with tools/fetch_model.py " + model,
              "model");
}

int report(const Error& error) {
  std::cerr << "outrider: " << error.message << '\n';
  return error.code == ErrorCode::invalid_argument ? k_exit_usage : k_exit_failed;
}

}  // namespace outrider::tools
