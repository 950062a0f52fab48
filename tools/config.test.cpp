#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/command.hpp"
#include "tools/config_check.hpp"

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

/// The error of a configuration that has the tiny model unless told otherwise; "" if it is good.
std::string problem_of(const std::vector<std::pair<std::string, std::string>>& values) {
  Settings settings;
  EXPECT_TRUE(settings.set("model", "tests/support/models/tiny-llama.gguf", "test"));
  for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value, "test")) << value;
  const auto checked = check_configuration(settings);
  if (checked) return "";
  EXPECT_EQ(checked.error().code, ErrorCode::invalid_argument);
  return checked.error().message;
}

TEST(ConfigCheck, ReadsTheModelsHeader) {
  const std::string path = testing::TempDir() + "outrider_config_model.gguf";
  for (const char* content : {"", "no GGUF at all, but long enough for the head of one"}) {
    std::ofstream(path, std::ios::binary) << content;
    EXPECT_THAT(problem_of({{"model", path}}), testing::StartsWith("model: ")) << content;
  }
  std::filesystem::remove(path);
}

TEST(ConfigCheck, KnowsTheModelsContext) {
  EXPECT_EQ(problem_of({{"ctx", "96"}}), "");
  EXPECT_THAT(problem_of({{"ctx", "16777216"}}),
              testing::StartsWith("ctx: 16777216 tokens are more"));
}

TEST(ConfigCheck, HttpAndRpcHavePortsOfTheirOwn) {
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [http, rpc] :
       {Pair{"127.0.0.1:8080", "127.0.0.1:8080"}, Pair{":8080", "127.0.0.1:8080"},
        Pair{"10.0.0.1:8080", "0.0.0.0:8080"}, Pair{"localhost:8080", "127.0.0.1:08080"}}) {
    EXPECT_THAT(problem_of({{"http", http}, {"rpc", rpc}}), testing::StartsWith("rpc: ")) << rpc;
  }
  for (const auto& [http, rpc] :
       {Pair{"127.0.0.1:0", "127.0.0.1:0"}, Pair{"127.0.0.1:8080", "127.0.0.2:8080"},
        Pair{":8080", ":8081"}, Pair{":8080", "off"}}) {
    EXPECT_EQ(problem_of({{"http", http}, {"rpc", rpc}}), "") << rpc;
  }
}

TEST(ConfigCheck, ADirectoryIsNoFileNorBelowOne) {
  const std::string file = testing::TempDir() + "outrider_config_file";
  std::ofstream(file) << "x";
  for (const char* name : {"weights-cache", "store-dir", "plan-dir"}) {
    for (const std::string& path : {file, file + "/below"}) {
      EXPECT_EQ(problem_of({{name, path}}),
                std::string(name) + ": \"" + file + "\" is not a directory");
    }
  }
  EXPECT_EQ(problem_of({{"weights-cache", file + "-not-there/yet"}}), "");
  EXPECT_EQ(problem_of({{"weights-cache", testing::TempDir()}}), "");
  std::filesystem::remove(file);
}

TEST(ConfigCheck, MakesNothing) {
  const std::string directory = testing::TempDir() + "outrider_config_new";
  std::filesystem::remove_all(directory);
  const std::vector<std::pair<std::string, std::string>> names = {{"store-dir", directory},
                                                                  {"weights-cache", directory},
                                                                  {"plan-dir", directory},
                                                                  {"kv-kind", "auto"}};
  EXPECT_EQ(problem_of(names), "");
  EXPECT_FALSE(std::filesystem::exists(directory));
  std::filesystem::create_directories(directory);
  EXPECT_EQ(problem_of(names), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::ofstream(directory + "/cluster-secret") << "short";
  EXPECT_THAT(problem_of(names), testing::StartsWith("store-dir: a cluster secret has "));
  std::filesystem::remove_all(directory);
}

TEST(ConfigCheck, ADirectoryCanBeWrittenTo) {
  char directory[] = "/tmp/outrider_config_XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  std::filesystem::permissions(
      directory, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec |
                     std::filesystem::perms::others_read | std::filesystem::perms::others_exec);
  for (const char* below : {"", "/not/there"}) {
    const std::string expected =
        "weights-cache: \"" + std::string(directory) + "\" cannot be written to: Permission denied";
    const pid_t child = ::fork();  // as somebody else than root, who may write anywhere
    ASSERT_GE(child, 0);
    if (child == 0) {
      const bool is_another = ::geteuid() != 0 || ::seteuid(65534) == 0;
      const std::string problem = problem_of({{"weights-cache", directory + std::string(below)}});
      ::_exit(is_another && problem == expected ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << below;
  }
  std::filesystem::remove(directory);
}

TEST(ConfigCheck, SeesSettingsThatDoNotGoTogether) {
  const std::string store = testing::TempDir() + "outrider_config_store";
  EXPECT_THAT(problem_of({{"store-dir", store}, {"store-cap-mb", "64"}, {"store-quota-mb", "65"}}),
              testing::StartsWith("store-quota-mb: "));
}

}  // namespace
}  // namespace outrider::tools
