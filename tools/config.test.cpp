#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tools/command.hpp"

namespace outrider::tools {
namespace {

int run(const std::vector<std::string>& words) {
  CLI::App app;
  Action action;
  add_config(app, action);
  app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  return action();
}

TEST(ConfigCheck, OpensTheFilesThatTheConfigurationNames) {
  const std::string keys = testing::TempDir() + "outrider_config_keys";
  const std::vector<std::string> words = {
      "config", "check", "--model", "tests/support/models/tiny-llama.gguf", "--api-key-file", keys};
  std::ofstream(keys) << "team:sk-12345\n";
  EXPECT_EQ(run(words), k_exit_done);
  std::ofstream(keys) << "# nobody\n";
  EXPECT_EQ(run(words), k_exit_usage);
  std::remove(keys.c_str());
  EXPECT_EQ(run(words), k_exit_usage);
  EXPECT_EQ(run({"config", "check", "--model", "no-such-model"}), k_exit_usage);
}

}  // namespace
}  // namespace outrider::tools
