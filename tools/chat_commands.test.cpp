#include "tools/chat_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>

namespace outrider::tools {
namespace {

using testing::HasSubstr;

TEST(Conversation, ResetKeepsTheSystemMessageOnly) {
  Conversation conversation("be brief", {});
  conversation.add_user("hi");
  conversation.add_answer("hello", {});
  EXPECT_EQ(conversation.messages.size(), 3u);
  conversation.command("/reset");
  ASSERT_EQ(conversation.messages.size(), 1u);
  EXPECT_EQ(conversation.messages[0]["role"], "system");
}

TEST(Conversation, SetChangesOneSettingAndRefusesBadValues) {
  Conversation conversation("", {});
  conversation.command("/set temperature 0.25");
  EXPECT_FLOAT_EQ(conversation.sampling.params.temperature, 0.25f);
  for (const char* line :
       {"/set temperature warm", "/set temperature -1", "/set top_p 2", "/set top_k 1.5",
        "/set max_tokens -1", "/set max_tokens 0", "/set temperature", "/set temperature 2.1"}) {
    EXPECT_THAT(conversation.command(line).text, HasSubstr("is not ")) << line;
  }
  EXPECT_THAT(conversation.command("/set heat 1").text, HasSubstr("unknown setting"));
  EXPECT_FLOAT_EQ(conversation.sampling.params.temperature, 0.25f);
}

TEST(Conversation, SetShowsAndTakesEverySetting) {
  Conversation conversation("", {});
  conversation.sampling.params.seed = 77;
  EXPECT_THAT(conversation.command("/set").text, HasSubstr("seed 77"));
  for (const char* name : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty",
                           "presence_penalty", "frequency_penalty", "seed", "max_tokens"}) {
    const std::string pair = std::string(name) + " 1";
    EXPECT_THAT(conversation.command("/set " + pair).text, HasSubstr(pair));
  }
  EXPECT_THAT(conversation.command("/set max_tokens rest").text, HasSubstr("max_tokens rest"));
  EXPECT_EQ(conversation.sampling.stop.max_tokens, 0u);
  conversation.command("/set seed 18446744073709551615");
  EXPECT_EQ(conversation.sampling.params.seed, UINT64_MAX);
  EXPECT_THAT(conversation.command("/set temperature nan").text, HasSubstr("is not "));
  EXPECT_THAT(conversation.command("/set presence_penalty 3").text, HasSubstr("is not "));
}

TEST(Conversation, StopTakesTheRestOfTheLineOrAList) {
  Conversation conversation("", {});
  const auto& stops = conversation.sampling.stop.stop_strings;
  conversation.command("/set stop the end");
  EXPECT_THAT(stops, testing::ElementsAre("the end"));
  conversation.command(R"(/set stop ["\n\n", "END"])");
  EXPECT_THAT(stops, testing::ElementsAre("\n\n", "END"));
  for (const char* bad : {"/set stop [1]", "/set stop [", "/set stop [\"\"]"}) {
    EXPECT_THAT(conversation.command(bad).text, HasSubstr("is not ")) << bad;
  }
  conversation.command("/set stop");
  EXPECT_TRUE(stops.empty());
}

TEST(Conversation, KnowsItsCommands) {
  Conversation conversation("", {});
  EXPECT_TRUE(conversation.command("/quit").quit);
  EXPECT_THAT(conversation.command("/help").text, HasSubstr("/reset"));
  EXPECT_THAT(conversation.command("/stats").text, HasSubstr("no answer yet"));
  EXPECT_THAT(conversation.command("/nope").text, HasSubstr("unknown command"));
}

TEST(Conversation, StatsCountCachedTokensApart) {
  Conversation conversation("", {});
  conversation.add_user("hi");
  ChatStats stats;
  stats.prompt_tokens = 10;
  stats.cached_tokens = 4;
  stats.answer_tokens = 5;
  stats.draft_tokens = 4;
  stats.accepted_draft_tokens = 3;
  stats.prefill_ms = 100;
  stats.decode_ms = 50;
  stats.finish_reason = "stop";
  conversation.add_answer("yo", stats);
  EXPECT_THAT(conversation.command("/stats").text,
              testing::StartsWith("prompt 10 tokens: 4 cached, 6 computed in 100 ms (60.0/s), "
                                  "answer 5 tokens in 50 ms (100.0/s), 3 of 4 drafted ones taken, "
                                  "finish stop"));
  stats.cached_tokens = 11;  // a server's word
  conversation.add_answer("yo", stats);
  EXPECT_THAT(conversation.command("/stats").text, HasSubstr("10 cached, 0 computed"));
}

TEST(History, IsWhereTheVariableSaysOrAtHome) {
  EXPECT_EQ(history_path(nullptr, "/h"), "/h/.outrider_history");
  EXPECT_EQ(history_path("lines", "/h"), "lines");
  EXPECT_EQ(history_path("", "/h"), "");
  EXPECT_EQ(history_path(nullptr, nullptr), "");
  const std::string pipe = testing::TempDir() + "outrider_history_pipe";
  std::remove(pipe.c_str());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(history_path(pipe.c_str(), "/h"), "") << "nobody reads it";
  std::remove(pipe.c_str());
}

TEST(Conversation, AFailedTurnLeavesNoTrace) {
  Conversation conversation("", {});
  conversation.add_user("hi");
  conversation.drop_last();
  EXPECT_TRUE(conversation.messages.empty());
}

}  // namespace
}  // namespace outrider::tools
