#include <iostream>

#include "tools/command.hpp"
#include "tools/config_check.hpp"
#include "tools/engine_options.hpp"
#include "tools/settings_rules.hpp"

namespace outrider::tools {

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
    command->callback([flags, with_files, &action] {
      action = [flags, with_files]() -> int {
        const auto settings = flags->resolve();
        if (!settings) return report(settings.error());
        if (!with_files) {
          std::cout << settings->render() << plan_threads(*settings).text << '\n';
          return k_exit_done;
        }
        const auto model = check_configuration(*settings);
        if (!model) return report(model.error());
        const auto warnings = check_together(*settings);
        if (!warnings) return report(warnings.error());
        for (const std::string& warning : *warnings) {
          std::cerr << "outrider: " << warning << '\n';
        }
        std::cout << "configuration is good; model " << *model << '\n';
        return k_exit_done;
      };
    });
  }
}

}  // namespace outrider::tools
