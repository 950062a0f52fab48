#include "tools/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace outrider::tools {
namespace {

using testing::HasSubstr;

class YamlFile {
 public:
  explicit YamlFile(const std::string& text)
      : path_(testing::TempDir() + "outrider_settings_test.yaml") {
    std::ofstream(path_) << text;
  }
  ~YamlFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Settings, FlagsWinOverFilesAndRememberWhereTheyCameFrom) {
  const YamlFile file("kv_memory_mb: 64\nthreads: 3\n");
  Settings settings;
  ASSERT_TRUE(settings.load_yaml(file.path()).ok());
  ASSERT_TRUE(settings.set("threads", "2", "flag").ok());
  EXPECT_EQ(settings.count("kv-memory-mb"), 64u);
  EXPECT_EQ(settings.count("threads"), 2u);
  EXPECT_EQ(settings.count("max-seqs"), 64u);
  EXPECT_THAT(settings.render(), HasSubstr("file " + file.path()));
}

TEST(Settings, AnUnknownKeyComesWithTheNearestOneAndItsLine) {
  const YamlFile file("threads: 1\nmax_seq: 4\n");
  Settings settings;
  const auto result = settings.load_yaml(file.path());
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, HasSubstr("line 2"));
  EXPECT_THAT(result.error().message, HasSubstr("\"max_seq\"; did you mean \"max_seqs\"?"))
      << "as names stand in a file";
  EXPECT_THAT(settings.set("max-seq", "4", "flag").error().message,
              HasSubstr("\"max-seq\"; did you mean \"max-seqs\"?"));
}

TEST(Settings, RefusesWhatDoesNotFitAndNamesTheSetting) {
  Settings settings;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"threads", "two"},
                                                        {"threads", "-1"},
                                                        {"threads", "1.5"},
                                                        {"threads", ""},
                                                        {"threads", "99999999999999999999"},
                                                        {"kv-kind", "fp12"},
                                                        {"kv-candidates", ""},
                                                        {"kv-candidates", "q8_0 auto"},
                                                        {"kv-candidates", "q8_0 k=q8_0,v=q8_0"},
                                                        {"kv-candidates", "q8_0,"},
                                                        {"kv-gate-nll", "-0.1"},
                                                        {"kv-gate-nll", "nan"},
                                                        {"kv-gate-ppl", "0.9"},
                                                        {"kv-probe-prompt", "7"},
                                                        {"block-tokens", "17"},
                                                        {"local-window", "-1"},
                                                        {"local-window", "16777217"},
                                                        {"decode-plan", "128"},
                                                        {"decode-chunks", "128,256"},
                                                        {"decode-chunks", "128,256,512,"},
                                                        {"decode-chunks", "128,0,512"},
                                                        {"http", "localhost"},
                                                        {"http", "1.2.3.4:70000"},
                                                        {"http", "off"},
                                                        {"rpc", "no"},
                                                        {"log-json", "yes"},
                                                        {"cors-origins", ""},
                                                        {"cors-origins", "my.page"},
                                                        {"store-tenant-quota-mb", "ann"},
                                                        {"store-tenant-quota-mb", "ann=0"},
                                                        {"store-tenant-quota-mb", "an\xE9=5"},
                                                        {"model-name", "\xFF"},
                                                        {"model-name", std::string(300, 'm')},
                                                        {"store-dir", "~ann/kv"},
                                                        {"max-batch-tokens", "0"}}) {
    const auto result = settings.set(name, value, "flag");
    ASSERT_FALSE(result.ok()) << name << "=" << value;
    EXPECT_EQ(result.error().field, name);
  }
  EXPECT_EQ(settings.set("threads", "two", "flag").error().message,
            "threads: \"two\" is not a whole number from 0 to 1024 threads or auto");
  EXPECT_THAT(settings.set("kv-kind", "fp12", "flag").error().message, HasSubstr(", nor auto"));
}

TEST(Settings, PathsMayBeginAtHome) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ::setenv("HOME", "/nest/ann", 1);
  Settings settings;
  for (const char* name :
       {"model", "store-dir", "weights-cache", "plan-dir", "api-key-file", "cluster-secret-file"}) {
    ASSERT_TRUE(settings.set(name, "~/x y", "flag").ok());
    EXPECT_EQ(settings.text(name), "/nest/ann/x y") << name;
  }
  for (const char* as_it_is : {"./~/kv", "a~/b", "/~", "an\xE9/kv"}) {
    ASSERT_TRUE(settings.set("store-dir", as_it_is, "flag").ok());
    EXPECT_EQ(settings.text("store-dir"), as_it_is);
  }
  ASSERT_TRUE(settings.set("model-name", "~/x", "flag").ok());
  EXPECT_EQ(settings.text("model-name"), "~/x") << "no path";
  ::unsetenv("HOME");
  EXPECT_THAT(settings.set("store-dir", "~/kv", "flag").error().message, HasSubstr("no $HOME"));
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

TEST(Settings, AreShownInColumnsWhateverTheirLength) {
  Settings settings;
  ASSERT_TRUE(settings.set("store-dir", "/data/" + std::string(60, 'x'), "flag").ok());
  const std::string text = settings.render();
  const size_t unit = text.find("unit");
  const size_t origin = text.find("origin");
  ASSERT_LT(origin, text.find('\n'));
  for (const auto& [name, row] : std::vector<std::pair<std::string, std::string>>{
           {"store-tenant-quota-mb", "MiB"}, {"kv-memory-mb", "MiB"}}) {
    const std::string line = text.substr(text.find("\n" + name) + 1);
    EXPECT_EQ(line.substr(unit, row.size()), row) << name;
    EXPECT_EQ(line.substr(origin, 8), "default\n") << name;
  }
  const std::string after = text.substr(text.find(std::string(60, 'x') + "\n") + 61);
  EXPECT_EQ(after.substr(origin, 5), "flag\n");
}

TEST(Settings, AutomaticThreadsCountAsZero) {
  Settings settings;
  EXPECT_EQ(settings.text("threads"), "auto");
  EXPECT_EQ(settings.count("threads"), 0u);
  ASSERT_TRUE(settings.set("threads", "3", "flag").ok());
  EXPECT_EQ(settings.count("threads"), 3u);
  ASSERT_TRUE(settings.set("threads", "auto", "flag").ok());
  EXPECT_EQ(settings.count("threads"), 0u);
}

TEST(Settings, DecimalsAreWhatWasWritten) {
  Settings settings;
  EXPECT_EQ(settings.decimal("kv-gate-nll"), 0.05);
  ASSERT_TRUE(settings.set("kv-gate-nll", "0.25", "flag").ok());
  EXPECT_EQ(settings.decimal("kv-gate-nll"), 0.25);
}

TEST(Settings, ListsAreWholeNumbersByCommas) {
  Settings settings;
  ASSERT_TRUE(settings.set("decode-chunks", "1,20,300", "flag").ok());
  EXPECT_THAT(settings.counts("decode-chunks"), testing::ElementsAre(1, 20, 300));
  ASSERT_TRUE(settings.set("decode-chunks", " 2, 30 ,400", "flag").ok());
  EXPECT_THAT(settings.counts("decode-chunks"), testing::ElementsAre(2, 30, 400));
  EXPECT_EQ(
      settings.set("decode-chunks", "1,2", "flag").error().message,
      "decode-chunks: \"1,2\" is not 3 numbers by commas, each a whole number from 1 to 4096");
}

TEST(Settings, OnlyTheRpcPortCanBeOff) {
  Settings settings;
  EXPECT_TRUE(settings.set("rpc", "off", "flag").ok());
}

TEST(Settings, RefusesAFileThatIsNoMapOfScalars) {
  for (const char* text : {"- a\n- b\n", "threads: [1]\n", "threads: {a: 1}\n", "a: b: c\n"}) {
    const YamlFile file(text);
    Settings settings;
    EXPECT_FALSE(settings.load_yaml(file.path()).ok()) << text;
  }
  for (const auto& [text, what] : std::vector<std::pair<std::string, std::string>>{
           {"ctx: 5\ndecode_chunks: [1, 2, 3]\n",
            "line 2: decode-chunks: takes one value, here is "
            "a YAML list; write the entries of a list by commas"},
           {"store: {dir: kv}\n", "line 1: store: takes one value, here is a YAML map"},
           {"store_dir: ~\n", "line 1: store-dir: takes one value, here is nothing"},
           {"[a]: 1\n", "line 1: expected the name of a setting"}}) {
    const YamlFile file(text);
    Settings settings;
    EXPECT_THAT(settings.load_yaml(file.path()).error().message, HasSubstr(what));
  }
  Settings settings;
  const auto missing = settings.load_yaml("no-such-file.yaml");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("No such file"));
  const auto directory = settings.load_yaml(testing::TempDir());
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message, HasSubstr("a directory, not a regular file"));
}

TEST(Settings, AKeyThatStandsTwiceIsAnErrorThatNamesIt) {
  for (const char* text : {"threads: 1\nctx: 5\nthreads: 2\n", "max_seqs: 1\nmax-seqs: 1\n"}) {
    const YamlFile file(text);
    Settings settings;
    const auto result = settings.load_yaml(file.path());
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(result.error().message, HasSubstr("is set twice"));
    EXPECT_THAT(result.error().message, HasSubstr("line "));
  }
}

TEST(Settings, AnEmptyFileSetsNothing) {
  for (const char* text : {"", "\n", "# later\n", "---\n"}) {
    const YamlFile file(text);
    Settings settings;
    EXPECT_TRUE(settings.load_yaml(file.path()).ok()) << text;
  }
}

TEST(NameDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(name_distance("", "abc"), 3u);
  EXPECT_EQ(name_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(name_distance("same", "same"), 0u);
}

TEST(NameDistance, IsOneWhereOnlyWordsAreMissing) {
  EXPECT_EQ(name_distance("draft-model", "draft"), 1u);
  EXPECT_EQ(name_distance("kv", "kv-memory-mb"), 1u);
  EXPECT_EQ(name_distance("drafts", "draft"), 1u);
  EXPECT_EQ(name_distance("drafting", "draft"), 3u);
}

TEST(NameDistance, OfEquallyNearNamesTheOneWithFewerEditsIsMeant) {
  EXPECT_EQ(nearest_name("cluster-secret-fil", {"cluster", "cluster-secret-file"}),
            "cluster-secret-file");
  EXPECT_EQ(nearest_name("cluster-secret-fil", {"cluster-secret-file", "cluster"}),
            "cluster-secret-file");
}

TEST(Settings, ANodesNameHasNoMoreThanALineOfALogMayHave) {
  Settings settings;
  EXPECT_TRUE(settings.set("node-name", "rack-7.target_2", "flag").ok());
  for (const std::string& name :
       {std::string("a b"), std::string("a\nb"), std::string("ä"), std::string(65, 'a')}) {
    const auto refused = settings.set("node-name", name, "flag");
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().field, "node-name");
  }
}

TEST(NameDistance, IsNoneWherePeersCallItSo) {
  EXPECT_EQ(name_distance("model-draft", "draft"), 0u);
  EXPECT_EQ(name_distance("draft", "model-draft"), 6u) << "nobody writes ours to mean theirs";
  Settings settings;
  const auto refused = settings.set("max-model-len", "1", "flag");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("did you mean \"ctx\"?"));
}

}  // namespace
}  // namespace outrider::tools
