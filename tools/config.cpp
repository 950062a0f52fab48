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

}  // namespace

void add_config(CLI::App& app, Action& action) {
  auto* config = app.add_subcommand("config", "Show or check the settings");
  config->require_subcommand(1);
  config->footer("Example: outrider config show --config cluster.yaml --threads 2");

  auto* show = config->add_subcommand("show", "Every setting: value, unit, default, origin");
  auto* check = config->add_subcommand("check", "Check a configuration and the files it names");
  for (CLI::App* command : {show, check}) {
    auto flags = std::make_shared<SettingFlags>();
    flags->add(*command);
    const bool with_files = command == check;
    const auto json = std::make_shared<bool>(false);
    if (command == show) command->add_flag("--json", *json, "the same for programs");
    command->callback([flags, with_files, json, &action] {
      action = [flags, with_files, json]() -> int {
        const auto settings = flags->resolve();
        if (!settings) return report(settings.error());
        if (!with_files) {
          std::cout << (*json ? settings_json(*settings)
                              : settings->render() + plan_threads(*settings).text)
                    << '\n';
          return k_exit_done;
        }
        const auto checked = check_configuration(*settings);
        if (!checked) return report(checked.error());
        for (const std::string& warning : checked->warnings) {
          std::cerr << "outrider: " << warning << '\n';
        }
        std::cout << "configuration is good; model " << checked->model << '\n';
        return k_exit_done;
      };
    });
  }
}

}  // namespace outrider::tools
