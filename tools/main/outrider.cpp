#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "tools/command.hpp"
#include "tools/version.hpp"

int main(int argc, char** argv) {
  using namespace outrider::tools;  // NOLINT: the composition root
  std::signal(SIGXFSZ, SIG_IGN);  // a file that would grow too large is a failed write, not an end
  CLI::App app("Outrider: exact LLM serving. Each command has its own --help.", "outrider");
  app.set_version_flag("--version", std::string("outrider ") + k_version);
  Action action;
  add_commands(app, action);
  try {
    parse_words(app, {argv + 1, argv + argc});
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::cerr << "outrider: " << usage_text(app, error.what()) << "\nRun with --help for more.\n";
    return k_exit_usage;
  }
  try {
    const int code = action();
    std::cout.flush();
    if (std::cout && std::fflush(stdout) == 0) return code;
    std::cerr << "outrider: not all output could be written: " << std::strerror(errno) << '\n';
    return k_exit_failed;
  } catch (const std::exception& error) {
    std::cerr << "outrider: " << error.what() << '\n';
    return k_exit_failed;
  }
}
