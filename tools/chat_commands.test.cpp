#include "tools/chat_commands.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  for (const char* line : {"/set temperature warm", "/set temperature -1", "/set top_p 2",
                           "/set top_k 1.5", "/set max_tokens 0", "/set temperature"}) {
    EXPECT_THAT(conversation.command(line).text, HasSubstr("is not a value")) << line;
  }
  EXPECT_THAT(conversation.command("/set heat 1").text, HasSubstr("unknown setting"));
  EXPECT_FLOAT_EQ(conversation.sampling.params.temperature, 0.25f);
}

TEST(Conversation, KnowsItsCommands) {
  Conversation conversation("", {});
  EXPECT_TRUE(conversation.command("/quit").quit);
  EXPECT_THAT(conversation.command("/help").text, HasSubstr("/reset"));
  EXPECT_THAT(conversation.command("/stats").text, HasSubstr("no answer yet"));
  EXPECT_THAT(conversation.command("/nope").text, HasSubstr("unknown command"));
  conversation.add_user("hi");
  conversation.add_answer("yo", {10, 5, 100.0, 50.0, "stop"});
  EXPECT_THAT(conversation.command("/stats").text, HasSubstr("100.0/s"));
}

TEST(Conversation, AFailedTurnLeavesNoTrace) {
  Conversation conversation("", {});
  conversation.add_user("hi");
  conversation.drop_last();
  EXPECT_TRUE(conversation.messages.empty());
}

}  // namespace
}  // namespace outrider::tools
