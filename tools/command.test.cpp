#include "tools/command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace outrider::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// What a command line is answered with before anything runs; "" if it is right.
std::string usage_of(const std::string& line) {
  CLI::App app("test", "outrider");
  app.set_version_flag("--version", "1");
  Action action;
  add_commands(app, action);
  try {
    app.parse(line);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    return usage_text(app, error.what());
  }
  return "";
}

TEST(Usage, NamesAnUnknownWordAndTheNearestKnownOne) {
  EXPECT_THAT(usage_of("serv"), AllOf(HasSubstr("\"serv\""), HasSubstr("\"serve\"")));
  EXPECT_THAT(usage_of("version"), AllOf(HasSubstr("\"version\""), HasSubstr("\"--version\"")));
  EXPECT_THAT(usage_of("inspect modle x"), HasSubstr("did you mean \"model\""));
  EXPECT_THAT(usage_of("serve --htpp :80"), HasSubstr("did you mean \"--http\""));
  EXPECT_THAT(usage_of("serve --thread=2"), HasSubstr("did you mean \"--threads\""));
  EXPECT_THAT(usage_of("serve --draft-model x"), HasSubstr("did you mean \"--draft\""));
  EXPECT_THAT(usage_of("serve --draft-max 4"), HasSubstr("did you mean \"--spec-depth-max\""));
}

TEST(Usage, ListsTheCommandsWhenNoneIsNear) {
  EXPECT_THAT(
      usage_of("inspect foo"),
      AllOf(HasSubstr("\"foo\""), HasSubstr("model, kv, plan, cluster"), Not(HasSubstr("mean"))));
  EXPECT_THAT(usage_of("serve somewhere"), HasSubstr("unexpected argument \"somewhere\""));
}

TEST(Usage, SaysWhatAFlagExpected) {
  EXPECT_THAT(usage_of("generate -n abc"),
              AllOf(HasSubstr("\"abc\""), HasSubstr("a whole number from 1")));
  for (const char* line : {"generate -n 0", "chat --max-tokens 0"}) {
    EXPECT_THAT(usage_of(line), AllOf(HasSubstr("--max-tokens"), HasSubstr("\"0\""))) << line;
  }
  EXPECT_THAT(usage_of("generate --temperature 3"), HasSubstr("a number from 0 to 2"));
  EXPECT_THAT(usage_of("load --seed -1"), HasSubstr("a whole number from 0"));
  EXPECT_THAT(usage_of("load --rate nan"), HasSubstr("a number from 0.001"));
  EXPECT_THAT(usage_of("load --slo-tpot nan"), HasSubstr("a number above 0"));
}

TEST(Usage, NamesAFlagThatStandsTwice) {
  EXPECT_EQ(usage_of("serve --http :1 --http :2"), "--http is given twice");
  EXPECT_EQ(usage_of("bench --batch 1 --batch 2 --batch 3"), "--batch is given 3 times");
  EXPECT_EQ(usage_of("generate -n 1 --max-tokens 2"), "--max-tokens is given twice");
  EXPECT_EQ(usage_of("generate --stop a --stop b"), "");
}

TEST(Usage, NumbersByCommasHaveNoGaps) {
  for (const char* list : {"1,,2", "1,", ",1", "0", "1,x"}) {
    EXPECT_THAT(usage_of(std::string("bench --batch ") + list),
                AllOf(HasSubstr("--batch: "), HasSubstr("is not a whole number from 1 to ")))
        << list;
  }
  EXPECT_THAT(usage_of("bench --depth 0,,1"), HasSubstr("--depth: \"\" in \"0,,1\""));
  EXPECT_EQ(usage_of("bench --batch 1,8,32 --depth 0,1024"), "");
}

TEST(Usage, LogprobsAreForJson) {
  EXPECT_EQ(usage_of("generate --logprobs 3"), "--logprobs requires --json");
  EXPECT_EQ(usage_of("generate --logprobs 3 --json"), "");
}

TEST(Usage, HelpHasAnExample) {
  for (const char* command :
       {"", "serve", "generate", "chat", "inspect", "inspect model", "inspect kv", "inspect plan",
        "inspect cluster", "config", "bench", "load"}) {
    EXPECT_THAT(usage_of(std::string(command) + " --help"), HasSubstr("Example: outrider"))
        << command;
  }
  EXPECT_THAT(usage_of("chat --help"), HasSubstr("/help"));
}

TEST(Usage, HelpGivesADefaultThatIsAWordNoUnit) {
  EXPECT_THAT(usage_of("serve --help"), AllOf(HasSubstr("[auto]"), Not(HasSubstr("[auto threads]")),
                                              HasSubstr("[16 tokens]"), HasSubstr("[1024 MiB]")));
}

TEST(Usage, HelpTellsFilesFromDirectories) {
  EXPECT_THAT(usage_of("generate --help"),
              AllOf(HasSubstr("--weights-cache DIR"), HasSubstr("--config FILE")));
}

TEST(Usage, ChatTakesAnEngineOrAServerNotBoth) {
  EXPECT_EQ(usage_of("chat --ctx 9 --url b"), "--url excludes --ctx");
  EXPECT_EQ(usage_of("chat --url b --config c"), "--url excludes --config");
  EXPECT_EQ(usage_of("chat --model a --url b"), "");
  EXPECT_THAT(usage_of("chat --help"), AllOf(HasSubstr("--url URL"), Not(HasSubstr("Excludes"))));
}

/// The settings that a command line gives.
Result<Settings> settings_of(const std::vector<std::string>& words) {
  CLI::App app;
  SettingFlags flags;
  flags.add(app);
  parse_words(app, words);
  return flags.resolve();
}

TEST(SettingFlags, HelpListsThemByTopic) {
  CLI::App app;
  SettingFlags flags;
  flags.add(app);
  const std::string help = app.help();
  const size_t store = help.find("\nThe KV store:\n");
  ASSERT_NE(store, std::string::npos) << help;
  const size_t next = help.find(":\n", store + 16);
  for (const char* name : {"--store-dir", "--store-cap-mb", "--store-quota-mb"}) {
    const size_t at = help.find(std::string("  ") + name + " ");
    EXPECT_TRUE(store < at && at < next) << name;
  }
  EXPECT_LT(help.find("--kv-memory-mb "), store);
}

TEST(SettingFlags, AnEmptyValueIsEmptyAndTakesNoOtherWord) {
  for (const auto& words : {std::vector<std::string>{"--model-name", "", "--threads", "2"},
                            std::vector<std::string>{"--model-name=", "--threads", "2"}}) {
    const auto settings = settings_of(words);
    ASSERT_TRUE(settings.ok());
    EXPECT_EQ(settings->text("model-name"), "");
    EXPECT_EQ(settings->text("threads"), "2");
  }
}

TEST(SettingFlags, AnEmptyValueWhereThereMustBeOneNamesTheFlag) {
  for (const char* name : {"threads", "http", "block-tokens", "log-json", "kv-kind"}) {
    for (const auto& words : {std::vector<std::string>{std::string("--") + name, ""},
                              std::vector<std::string>{std::string("--") + name + "="}}) {
      const auto settings = settings_of(words);
      ASSERT_FALSE(settings.ok()) << name;
      EXPECT_EQ(settings.error().field, name);
    }
  }
}

TEST(SettingFlags, AFlagAloneIsTrue) {
  EXPECT_TRUE(settings_of({"--log-json"})->flag("log-json"));
  EXPECT_FALSE(settings_of({"--log-json", "false"})->flag("log-json"));
}

TEST(ResolveModel, SaysWhatIsMissingAndGivesNoAdviceThatCannotWork) {
  const auto missing = [](const std::string& name) { return resolve_model(name).error().message; };
  EXPECT_THAT(missing("nope.gguf"), AllOf(HasSubstr("no file \"nope.gguf\""),
                                          Not(HasSubstr("nope.gguf.gguf")), HasSubstr("--list")));
  EXPECT_THAT(missing("nope"), HasSubstr("models/nope.gguf"));
  EXPECT_THAT(missing(testing::TempDir()), HasSubstr("is a directory"));
}

}  // namespace
}  // namespace outrider::tools
