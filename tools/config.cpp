#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/command.hpp"
#include "tools/config_check.hpp"
#include "tools/engine_options.hpp"

namespace outrider::tools {
namespace {

/// A path may be any bytes.
std::string settings_json(const Settings& settings) {
  nlohmann::ordered_json out = {{"settings", nlohmann::ordered_json::array()},
                                {"threads", plan_threads(settings).text}};
  for (const Setting& setting : settings.all()) {
    out["settings"].push_back({{"setting", setting.name},
                               {"value", setting.value},
                               {"unit", setting.unit},
                               {"default", setting.default_value},
                               {"origin", setting.origin}});
  }
  return out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void tell(const char* what, const std::string& message) {
  std::cerr << what << ": " << message << '\n';
}

int check(const SettingFlags& flags) {
  const auto settings = flags.resolve();
  if (!settings) {
    tell("error", settings.error().message);
    return k_exit_failed;
  }
  const CheckedSettings checked = check_configuration(*settings);
  for (const std::string& warning : checked.warnings) tell("warning", warning);
  for (const Error& error : checked.errors) tell("error", error.message);
  if (!checked.errors.empty()) return k_exit_failed;
  std::cout << "configuration is good; model " << checked.model << '\n';
  return k_exit_done;
}

int show(const SettingFlags& flags, bool json) {
  const auto settings = flags.resolve();
  if (!settings) return report(settings.error());
  std::cout << (json ? settings_json(*settings) : settings->render() + plan_threads(*settings).text)
            << '\n';
  return k_exit_done;
}

}  // namespace

void add_config(CLI::App& app, Action& action) {
  auto* config = app.add_subcommand("config", "Show or check the settings");
  config->require_subcommand(1);
  config->footer("Example: outrider config show --config cluster.yaml --threads 2");

  auto* shown = config->add_subcommand("show", "Every setting: value, unit, default, origin");
  auto shown_flags = std::make_shared<SettingFlags>();
  shown_flags->add(*shown);
  const auto json = std::make_shared<bool>(false);
  shown->add_flag("--json", *json, "the same for programs");
  shown->callback([shown_flags, json, &action] {
    action = [shown_flags, json] { return show(*shown_flags, *json); };
  });

  auto* checked = config->add_subcommand("check", "Check a configuration and the files it names");
  auto checked_flags = std::make_shared<SettingFlags>();
  checked_flags->add(*checked);
  checked->footer("Exit code 1 if there is an error; warnings stop no start");
  checked->callback(
      [checked_flags, &action] { action = [checked_flags] { return check(*checked_flags); }; });
}

}  // namespace outrider::tools
