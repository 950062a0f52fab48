#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.hpp"
#include "kvstore/cold_store.hpp"
#include "tools/command.hpp"
#include "tools/config_check.hpp"

namespace outrider::tools {
namespace {

namespace fs = std::filesystem;

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
  EXPECT_EQ(run(words), k_exit_failed);
  std::remove(keys.c_str());
  EXPECT_EQ(run(words), k_exit_failed);
  EXPECT_EQ(run({"config", "check", "--model", "no-such-model"}), k_exit_failed);
}

/// Each setting that names a file, with a file of the wrong kind.
TEST(ConfigCheck, WaitsForNoPipe) {
  const std::string directory = testing::TempDir() + "outrider_config_pipes";
  fs::remove_all(directory);
  fs::create_directories(directory + "/store");
  const std::string pipe = directory + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((directory + "/store/cluster-secret").c_str(), 0600), 0);
  const std::string model = "tests/support/models/tiny-llama.gguf";
  const std::vector<std::pair<std::string, std::string>> flags = {
      {"--config", pipe}, {"--api-key-file", pipe}, {"--cluster-secret-file", pipe},
      {"--model", pipe},  {"--draft", pipe},        {"--store-dir", directory + "/store"}};
  for (const auto& [flag, value] : flags) {
    std::vector<std::string> words = {"config", "check", flag, value};
    if (flag != "--model") words.insert(words.end(), {"--model", model});
    testing::internal::CaptureStderr();
    const int code = run(words);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(code, k_exit_done) << flag;
    EXPECT_THAT(said, testing::HasSubstr("not a regular file")) << flag;
  }
  fs::remove_all(directory);
}

/// What a configuration is told on stderr, and the exit code.
std::pair<std::string, int> told(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"config", "check"});
  testing::internal::CaptureStderr();
  const int code = run(flags);
  return {testing::internal::GetCapturedStderr(), code};
}

TEST(ConfigCheck, SaysOfEachProblemWhetherItStopsAStart) {
  const std::string model = "tests/support/models/tiny-llama.gguf";
  EXPECT_EQ(told({"--model", model}), (std::pair<std::string, int>("", k_exit_done)));
  const auto [warned, good] = told({"--model", model, "--store-cap-mb", "64"});
  EXPECT_EQ(warned, "warning: store-cap-mb has no effect without store-dir\n");
  EXPECT_EQ(good, k_exit_done);
  const auto [all, bad] = told({"--model", "no-such-model", "--store-cap-mb", "64", "--http", ":80",
                                "--rpc", ":80", "--plan-dir", "/proc/x"});
  EXPECT_EQ(bad, k_exit_failed);
  EXPECT_THAT(all, testing::MatchesRegex("warning: plan-dir has no effect.*\n"
                                         "warning: store-cap-mb has no effect.*\n"
                                         "error: rpc: .*\nerror: plan-dir: .*\n"
                                         "error: model: .*\n"))
      << "all of them";
  const auto [wrong, refused] = told({"--ctx", "many"});
  EXPECT_THAT(wrong, testing::StartsWith("error: ctx"));
  EXPECT_EQ(refused, k_exit_failed);
}

/// The error of a configuration that has the tiny model unless told otherwise; "" if it is good.
std::string problem_of(const std::vector<std::pair<std::string, std::string>>& values) {
  Settings settings;
  EXPECT_TRUE(settings.set("model", "tests/support/models/tiny-llama.gguf", "test"));
  for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value, "test")) << value;
  const CheckedSettings checked = check_configuration(settings);
  if (checked.errors.empty()) return "";
  EXPECT_EQ(checked.errors.front().code, ErrorCode::invalid_argument);
  return checked.errors.front().message;
}

TEST(ConfigCheck, ANodesFileIsAPartOfAClusterToo) {
  EXPECT_EQ(problem_of({{"roles", "target"}, {"join", "127.0.0.1:8090"}}), "");
  EXPECT_EQ(problem_of({{"roles", "draft"}, {"join", "localhost:8090"}}), "");
  EXPECT_THAT(problem_of({{"roles", "draft"}}), testing::StartsWith("join: where is the server?"));
  EXPECT_THAT(problem_of({{"roles", "target"}, {"join", "server-1:8090"}}),
              testing::StartsWith("join: server-1:8090 is on another machine"));
  EXPECT_THAT(problem_of({{"roles", "gateway"}}), testing::StartsWith("roles: a gateway needs"));
  EXPECT_THAT(problem_of({{"roles", "gateway"}, {"join", "server-1:8090"}}),
              testing::StartsWith("roles: a node is a target or a draft"));
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
  EXPECT_EQ(problem_of({{"roles", "gateway"}, {"cluster", "127.0.0.1:8090"}, {"ctx", "96"}}), "");
  EXPECT_THAT(
      problem_of({{"roles", "gateway"}, {"cluster", "127.0.0.1:8090"}, {"ctx", "16777216"}}),
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
  for (const char* other : {"http", "rpc"}) {
    EXPECT_THAT(problem_of({{other, "127.0.0.1:8090"}, {"cluster", ":8090"}}),
                testing::HasSubstr(std::string("cluster: \":8090\" is the port of ") + other));
  }
}

TEST(ConfigCheck, ADirectoryIsNoLinkToNothingNorBelowOne) {
  const std::string link = testing::TempDir() + "outrider_config_to_nothing";
  fs::remove(link);
  fs::create_symlink(link + "_gone", link);
  for (const std::string& path : {link, link + "/below"}) {
    EXPECT_EQ(problem_of({{"store-dir", path}}),
              "store-dir: \"" + link + "\" leads nowhere: is its disk mounted?");
  }
  fs::remove(link);
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

TEST(ConfigCheck, RefusesASecretThatAStartCannotRead) {
  const std::string directory = testing::TempDir() + "outrider_config_dangling";
  fs::remove_all(directory);
  fs::create_directories(directory);
  const std::string link = directory + "/cluster-secret";
  fs::create_symlink(directory + "/gone", link);
  EXPECT_EQ(problem_of({{"store-dir", directory}}),
            "store-dir: cannot read a cluster secret from " + link + ": No such file or directory");
  EXPECT_EQ(problem_of({{"cluster-secret-file", link}}),
            "cluster-secret-file: cannot read a cluster secret from " + link +
                ": No such file or directory");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1) << "it only looks";
  fs::remove_all(directory);
}

std::vector<std::string> warnings_of(
    const std::vector<std::pair<std::string, std::string>>& values) {
  Settings settings;
  EXPECT_TRUE(settings.set("model", "tests/support/models/tiny-llama.gguf", "test"));
  for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value, "test")) << value;
  return check_configuration(settings).warnings;
}

/// A copy of the tiny Qwen2, some number of its header being another.
std::string qwen_with(const std::string& key, uint32_t value) {
  std::ifstream in("tests/support/models/tiny-qwen2.gguf", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const size_t at = bytes.find(key) + key.size() + sizeof(uint32_t);  // the value's type
  std::memcpy(&bytes.at(at), &value, sizeof(value));
  std::string path = testing::TempDir() + "outrider_config_" + key + ".gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST(ConfigCheck, WarnsOfADraftModelWhoseMemoryIsTooSmallForTheContext) {
  const std::string far = qwen_with("qwen2.context_length", 8192);
  EXPECT_THAT(warnings_of({{"model", far}, {"draft", far}}), testing::IsEmpty());
  EXPECT_THAT(warnings_of({{"model", far}, {"draft", far}, {"draft-kv-memory-mb", "1"}}),
              testing::ElementsAre("draft-kv-memory-mb 1 MiB: the draft model's context is 2032 of "
                                   "8192 tokens; what is longer is not drafted for by it"));
  const std::string deep = qwen_with("qwen2.block_count", 1024);
  EXPECT_EQ(problem_of({{"model", far}, {"draft", deep}, {"draft-kv-memory-mb", "1"}}),
            "draft-kv-memory-mb: 1 MiB hold no token");
  for (const std::string& path : {far, deep}) fs::remove(path);
}

TEST(ConfigCheck, WarnsOfAStoreThatTenantsShareWithoutQuotas) {
  const std::string keys = testing::TempDir() + "outrider_config_share_keys";
  std::ofstream(keys) << "ann:eight-bytes-and-more\n";
  fs::permissions(keys, fs::perms::owner_read);
  const std::string store = testing::TempDir() + "outrider_config_share_store";
  const auto warned = testing::ElementsAre(testing::HasSubstr("may push out another's"));
  EXPECT_THAT(warnings_of({{"store-dir", store}, {"api-key-file", keys}}), warned);
  EXPECT_THAT(warnings_of({{"store-dir", store}}), testing::IsEmpty());
  EXPECT_THAT(warnings_of({{"api-key-file", keys}}), testing::IsEmpty());
  for (const auto& [name, value] :
       {std::pair{"store-quota-mb", "64"}, std::pair{"store-tenant-quota-mb", "ann=64"}}) {
    EXPECT_THAT(warnings_of({{"store-dir", store}, {"api-key-file", keys}, {name, value}}),
                testing::IsEmpty())
        << name;
  }
  fs::remove(keys);
}

TEST(ConfigCheck, WarnsOfSecretsThatAllUsersMayReadOrWrite) {
  using fs::perms;
  const std::string directory = testing::TempDir() + "outrider_config_secrets";
  fs::create_directories(directory);
  const std::string own = directory + "/cluster-secret";
  const std::string keys = directory + "/keys";
  for (const std::string& path : {own, keys}) std::ofstream(path) << "sixteen-bytes-and-more\n";
  fs::permissions(directory, perms::owner_all);
  using Values = std::vector<std::pair<std::string, std::string>>;
  const auto open_to_all = [](const std::string& name, const std::string& path) {
    return name + ": \"" + path +
           "\" is open to all users (mode 666); chmod 600 keeps it to its owner";
  };
  for (const auto& [values, warning] : std::vector<std::pair<Values, std::string>>{
           {{{"store-dir", directory}}, open_to_all("store-dir", own)},
           {{{"store-dir", directory}, {"cluster-secret-file", keys}},
            open_to_all("cluster-secret-file", keys)},
           {{{"api-key-file", keys}}, open_to_all("api-key-file", keys)}}) {
    for (const std::string& path : {own, keys}) fs::permissions(path, static_cast<perms>(0640));
    EXPECT_THAT(warnings_of(values), testing::IsEmpty()) << warning;
    for (const std::string& path : {own, keys}) fs::permissions(path, static_cast<perms>(0666));
    EXPECT_THAT(warnings_of(values), testing::ElementsAre(warning));
  }
  fs::permissions(own, static_cast<perms>(0600));
  fs::permissions(directory, static_cast<perms>(0755));
  EXPECT_THAT(warnings_of({{"store-dir", directory}}),
              testing::ElementsAre("store-dir: \"" + directory +
                                   "\" is open to all users (mode 755) until the next start, which "
                                   "makes it 700"));
  fs::remove_all(directory);
}

/// A process that has a store open until it is let go.
class StoreHolder {
 public:
  explicit StoreHolder(const std::string& directory) {
    int opened[2];
    int end[2];
    if (::pipe(opened) != 0 || ::pipe(end) != 0) std::abort();
    id = ::fork();
    ::close(end[id == 0 ? 1 : 0]);
    if (id == 0) hold(directory, opened[1], end[0]);
    ::close(opened[1]);
    char byte = 0;
    is_open = ::read(opened[0], &byte, 1) == 1;
    ::close(opened[0]);
    end_ = end[1];
  }
  /// Whether the store was open to the end.
  bool let_go() {
    ::close(end_);
    int status = -1;
    return ::waitpid(id, &status, 0) == id && status == 0;
  }

  pid_t id = -1;
  bool is_open = false;

 private:
  [[noreturn]] static void hold(const std::string& directory, int opened, int end) {
    const SteadyClock clock;
    kvstore::ColdStore store({.directory = directory, .cap_bytes = 64 << 20}, {.clock = clock});
    char byte = 0;
    const bool good = store.wait_open(std::chrono::minutes(1)) && ::write(opened, &byte, 1) == 1 &&
                      ::read(end, &byte, 1) == 0 && store.stats().outage == kvstore::Outage::none;
    ::_exit(good ? 0 : 1);
  }
  int end_ = -1;
};

std::set<std::string> files_in(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    names.insert(entry.path().string());
  }
  return names;
}

TEST(ConfigCheck, NamesWhoHasTheStoreOpenAndLeavesItInPeace) {
  const std::string directory = testing::TempDir() + "outrider_config_held";
  fs::remove_all(directory);
  StoreHolder holder(directory);
  ASSERT_TRUE(holder.is_open);
  const std::string secret = directory + "/cluster-secret";
  std::ofstream(secret) << std::string(64, 'a');
  fs::permissions(secret, fs::perms::owner_read | fs::perms::owner_write);
  const auto files = files_in(directory);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(warnings_of({{"store-dir", directory}}),
                testing::ElementsAre(testing::StartsWith("store-dir: \"" + directory +
                                                         "\" is in use by process " +
                                                         std::to_string(holder.id) + ": ")));
  }
  EXPECT_EQ(files_in(directory), files);
  EXPECT_TRUE(holder.let_go());
  EXPECT_THAT(warnings_of({{"store-dir", directory}}), testing::IsEmpty()) << "whoever had it";
  fs::remove(secret);
  EXPECT_THAT(warnings_of({{"store-dir", directory}}),
              testing::ElementsAre(testing::HasSubstr("but not its cluster-secret")));
  fs::remove_all(directory);
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

TEST(ConfigCheck, ADirectoryOfTheKernelHoldsNoFiles) {
  EXPECT_EQ(problem_of({{"store-dir", "/proc/x"}}),
            "store-dir: \"/proc\" is the kernel's, no place for files");
}

TEST(ConfigCheck, SeesSettingsThatDoNotGoTogether) {
  const std::string store = testing::TempDir() + "outrider_config_store";
  EXPECT_THAT(problem_of({{"store-dir", store}, {"store-cap-mb", "64"}, {"store-quota-mb", "65"}}),
              testing::StartsWith("store-quota-mb: "));
}

/// Warnings, or the error alone. 1.5 MiB a block, and 8192 tokens of context.
std::vector<std::string> sizes(const std::vector<std::pair<std::string, std::string>>& values) {
  Settings settings;
  for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value, "test")) << value;
  model::ModelConfig config;
  config.layers = 24;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.context_length = 8192;
  const auto checked = check_kv_sizes(settings, config);
  if (checked) return *checked;
  EXPECT_TRUE(checked.error().message.starts_with(checked.error().field + ": "));
  return {"error: " + checked.error().message};
}

TEST(ConfigCheck, SaysWhatTheContextNeeds) {
  using testing::ElementsAre;
  EXPECT_THAT(sizes({}), ElementsAre());
  EXPECT_THAT(
      sizes({{"kv-memory-mb", "1"}}),
      ElementsAre("error: kv-memory-mb: 1 MiB hold 0 tokens; 8192 tokens (ctx) take 770 MiB"));
  EXPECT_THAT(
      sizes({{"kv-memory-mb", "769"}, {"ctx", "8192"}}),
      ElementsAre("error: kv-memory-mb: 769 MiB hold 8176 tokens; 8192 tokens (ctx) take 770 "
                  "MiB"));
  EXPECT_THAT(sizes({{"kv-memory-mb", "770"}, {"ctx", "8192"}}), ElementsAre());
  EXPECT_THAT(sizes({{"kv-memory-mb", "100"}}),
              ElementsAre(testing::EndsWith("model's 8192; 8192 tokens (ctx) take 770 MiB")));
  EXPECT_THAT(sizes({{"kv-memory-mb", "1"}, {"kv-kind", "auto"}}), ElementsAre());
}

TEST(ConfigCheck, AWindowAsLongAsTheContextHasNoEffect) {
  using testing::ElementsAre;
  EXPECT_THAT(sizes({{"local-window", "8191"}}), ElementsAre());
  EXPECT_THAT(sizes({{"local-window", "8192"}}),
              ElementsAre("local-window 8192 has no effect: the context is 8192 tokens"));
  EXPECT_THAT(sizes({{"local-window", "96"}, {"ctx", "96"}}),
              ElementsAre("local-window 96 has no effect: the context is 96 tokens"));
}

TEST(ConfigCheck, SaysWhatAQuotaHoldsIfItIsLittle) {
  using testing::ElementsAre;
  const std::string each = " of this model's blocks, each 16 tokens in 1572864 bytes";
  EXPECT_THAT(sizes({{"store-dir", "kv"}, {"store-quota-mb", "1"}}),
              ElementsAre("store-quota-mb: 1 MiB hold 0" + each));
  EXPECT_THAT(sizes({{"store-dir", "kv"}, {"store-tenant-quota-mb", "ann=100,bob=1"}}),
              ElementsAre("store-tenant-quota-mb: bob's 1 MiB hold 0" + each));
  EXPECT_THAT(sizes({{"store-dir", "kv"}, {"store-quota-mb", "3"}}),
              ElementsAre("store-quota-mb: 3 MiB hold 2" + each));
  EXPECT_THAT(sizes({{"store-dir", "kv"}, {"store-quota-mb", "24"}}), ElementsAre());
  EXPECT_THAT(sizes({{"store-quota-mb", "1"}}), ElementsAre()) << "without effect";
}

TEST(ConfigCheck, KnowsWhichTenantsHaveKeys) {
  const std::string keys = testing::TempDir() + "outrider_config_tenants";
  std::ofstream(keys) << "ann:sk-12345\n";
  Settings settings;
  for (const auto& [name, value] :
       {std::pair<const char*, std::string>{"model", "tests/support/models/tiny-llama.gguf"},
        {"store-dir", testing::TempDir() + "outrider_config_store"},
        {"store-tenant-quota-mb", "ann=64,bob=64"},
        {"api-key-file", keys}}) {
    ASSERT_TRUE(settings.set(name, value, "test"));
  }
  const auto checked = check_serving(settings);
  std::filesystem::remove(keys);
  ASSERT_TRUE(checked.ok());
  EXPECT_THAT(
      checked->warnings,
      testing::ElementsAre("store-tenant-quota-mb: the API key file has no key of \"bob\""));
}

TEST(ConfigShow, IsTheSameForPrograms) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"config", "show", "--json", "--ctx", "96"}), k_exit_done);
  const auto shown = nlohmann::json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(shown["settings"].size(), Settings().all().size());
  const auto row = std::ranges::find_if(
      shown["settings"], [](const nlohmann::json& setting) { return setting["setting"] == "ctx"; });
  ASSERT_NE(row, shown["settings"].end());
  EXPECT_EQ((*row)["value"], "96");
  EXPECT_EQ((*row)["unit"], "tokens");
  EXPECT_EQ((*row)["origin"], "flag");
  EXPECT_TRUE(shown["threads"].get<std::string>().starts_with("threads: "));
}

}  // namespace
}  // namespace outrider::tools
